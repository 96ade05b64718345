// Package matfile reads variables of MATLAB files, versions 6 and 7 (MAT-File Level 5). It imports no other package of
// the project.
package matfile
