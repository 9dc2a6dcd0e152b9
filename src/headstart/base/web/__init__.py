"""The front end's shared floor: pages of plain HTML, CSS and JavaScript, each one self-contained file."""
