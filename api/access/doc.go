// Package access asks policy, for package api's surfaces, which parts of a registration a
// caller may see, and which changes it may make.
//
// A registration that policy hides from a caller doesn't exist for that caller: not in
// lookups and their counts, not under its path, its name, its record or its proof, and a
// condition on it finds nothing. The one exception is First Come First Remembered
// (jimenez 7.1): a caller who wants to register a name learns that it is taken.
package access
