"""What the command line can do, a module a subject; heavy libraries are imported when used."""
