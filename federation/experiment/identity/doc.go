// Package identity says which experiment a run belongs to, and which values set two experiments apart. It may import
// nothing of federation.
package identity
