"""Pages: one self-contained HTML file each, which opens offline."""
