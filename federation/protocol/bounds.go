package protocol

import "errors"

// The bounds of messages, in bytes and in items.
const (
	MaxPage        = 1 << 20 // of a page that was pulled
	MaxKeys        = 1 << 20
	MaxDigests     = 1000 // in one page
	MaxNames       = 1000 // in one request for records
	MaxRecordsBody = MaxNames*100 + 1024
	MaxAnswer      = 8 << 20 // of records in one answer; omitted records are requested again
)

// MaxTime bounds the Unix seconds in a message: the end of the year 9999. Times are shown in
// the form of RFC 3339, which has no later ones.
const MaxTime = 253402300799

// ErrTime means that a time in a message is negative or over MaxTime.
var ErrTime = errors.New("timestamp out of range")
