package cli

import (
	"bytes"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/roster-mesh/roster/directory"
)

// MaxFile bounds a file with a document, in bytes: white space counts for nothing.
const MaxFile = 1 << 20

// FitDocument returns a document without the white space between its tokens if it has more
// bytes than a registration may have with it. Other documents keep every byte.
func FitDocument(document []byte) []byte {
	if len(document) <= directory.MaxDocument {
		return document
	}

	compact := jsontext.Value(bytes.Clone(document))
	if err := compact.Compact(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)); err != nil {
		// The reader of the document says why it is malformed.
		return document
	}

	return compact
}
