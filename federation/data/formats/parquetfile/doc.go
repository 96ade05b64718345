// Package parquetfile reads columns and images of Parquet files with limits on memory, whatever sizes a file claims. It
// imports only runtime/oneline.
package parquetfile
