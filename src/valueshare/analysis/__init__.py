"""Statistics of records: tidy tables in, tidy tables out."""
