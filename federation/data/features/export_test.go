package features

// StorageWith is Extractor.Storage with another function for free bytes.
var StorageWith = Extractor.storage
