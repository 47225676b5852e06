package protocol

// The bounds of messages, in bytes and in items.
const (
	MaxPage        = 1 << 20 // of a page that was pulled
	MaxKeys        = 1 << 20
	MaxDigests     = 1000 // in one page
	MaxNames       = 1000 // in one request for records
	MaxRecordsBody = MaxNames*100 + 1024
	MaxAnswer      = 8 << 20 // of records in one answer; omitted records are requested again
)
