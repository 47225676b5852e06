package state

import (
	"time"

	"github.com/roster-mesh/roster/directory"
)

// untilOf returns when a document ends by its own word, in Unix seconds; 0 for
// never.
func EndOf(doc directory.Document) int64 {
	if ends := doc.Dates().Expires; !ends.IsZero() {
		return max(ends.Unix(), 1)
	}
	return 0
}

// capped returns the lifetime of what ends at until by its own word (XU-047); 0 is
// never. Times are Unix seconds but now, which is in milliseconds.
func CapLifetime(lifetime uint32, until, now int64) (uint32, error) {
	if until == 0 {
		return lifetime, nil
	}
	left := until - now/1000
	if left <= 0 {
		return 0, directory.Refuse(directory.StaleMetadata, "the document says that it has expired: expires_at is %s",
			time.Unix(until, 0).UTC().Format(time.RFC3339)).At("/expires_at")
	}
	return uint32(min(int64(lifetime), left)), nil
}
