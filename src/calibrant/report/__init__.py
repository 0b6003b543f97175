"""What experiments have found, for people: tables, figures and a page, made of the files that a run leaves behind."""
