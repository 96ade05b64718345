// Package domains reads published sets with several visual domains: PACS, VLCS, TerraIncognita, Office-31, Office-Home,
// Office-Caltech10, DomainNet and Digits. It may import federation/data, its formats and the package source.
package domains
