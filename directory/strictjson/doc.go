// Package strictjson reads and writes JSON objects by their members. [ParseObject] is the
// gate for bytes from outside: it takes exactly one strict object of bounded depth.
// [SplitObject] reads again, without copying, what came through that gate. The Append
// functions write JSON in one canonical form, as signed formats need it.
package strictjson
