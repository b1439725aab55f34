"""The report: everything that is found about one network, as one document and one page."""
