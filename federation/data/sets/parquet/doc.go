// Package parquet reads images in Parquet files, as Hugging Face data sets are stored. It may import federation/data,
// formats/parquetfile and the package source.
package parquet
