"""Where a run is: a folder, or a URL of a store, with copies of it on the local disk."""
