"""Where a run is: a folder, or an address of a store, with copies of it on the local disk."""
