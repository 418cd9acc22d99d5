"""Record formats: one file for each, behind one interface (`base.RecordFormat`)."""

from dataprep.formats.base import Draft, Fault, Record, RecordFormat, View, Want, components, get, image_header

__all__ = ["Draft", "Fault", "Record", "RecordFormat", "View", "Want", "components", "get", "image_header"]
