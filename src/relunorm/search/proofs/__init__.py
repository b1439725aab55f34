"""The tape of a search: written, kept in a document, replayed."""
