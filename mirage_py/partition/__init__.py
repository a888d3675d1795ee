"""Programs beyond the search's limit: cut into parts, each searched by itself, put in sequence."""
