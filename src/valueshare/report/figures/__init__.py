"""One function per figure: data frames in, matplotlib figures out, in one style."""
