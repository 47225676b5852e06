// Package strictjson reads and writes JSON objects by their members. [ParseObject] is the gate
// for bytes from outside: it accepts exactly one strict object of bounded depth. [SplitObject]
// reads an accepted object again, without copying. The Append functions write JSON in one
// canonical form, as signed formats need it.
package strictjson
