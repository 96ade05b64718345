// Package parquetfile reads columns and images of Parquet files with limits on memory, whatever sizes a file claims. It
// imports no other package of the project.
package parquetfile
