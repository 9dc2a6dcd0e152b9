"""Know before you deploy, and look again when something seems wrong: measure, advise, audit, report."""
