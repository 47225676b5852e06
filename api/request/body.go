package request

import (
	"bytes"
	"errors"
	"io"
	"mime"
	"net/http"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/roster-mesh/roster/api/admission"
	"github.com/roster-mesh/roster/api/wire"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/problem"
)

// MaxBody bounds a request's body in bytes, unless its route says otherwise (AD-042).
const MaxBody = wire.MaxBody

// ReadBody reads a body of at most the size that the call's route takes, and then waits
// until the call may be worked on. A body must be declared as JSON and not be compressed
// (AD-046); an empty one may be declared as anything (AD-057).
func ReadBody(w http.ResponseWriter, call *Call) ([]byte, error) {
	coding := strings.Join(call.Header.Values("Content-Encoding"), ", ")
	if coding != "" && !strings.EqualFold(coding, "identity") {
		return nil, &problem.Refusal{
			Err: directory.Refuse(problem.MediaType,
				"Content-Encoding %.64q is not supported for a body. Send it without a content encoding", coding),
			Header: http.Header{"Accept-Encoding": {"identity"}}, // RFC 9110, 12.5.3
		}
	}

	body, err := readAll(w, call)
	if err != nil {
		if problem.Explain(err).Err.Problem == directory.Internal {
			// A client that breaks its body off is at fault, and not the node.
			err = directory.Refuse(directory.BadRequest, "the body could not be read to its end: %w", err)
		}

		return nil, err
	}

	if mediaType := call.Header.Get("Content-Type"); len(body) > 0 && !IsJSON(mediaType) {
		return nil, directory.Refuse(problem.MediaType,
			"Content-Type %.64q is not supported. Send JSON as application/json", mediaType)
	}

	return body, call.Slot.TakeFor(call.Context(), len(body) == 0)
}

// readAll reads a body that was counted, into no more memory than was counted: of its declared
// length, or in pieces as large as those in which it is counted.
func readAll(w http.ResponseWriter, call *Call) ([]byte, error) {
	if call.ContentLength > call.MaxBody {
		return nil, &http.MaxBytesError{Limit: call.MaxBody}
	}

	// It has net/http close the connection of an HTTP/1 client that goes on beyond the bound.
	in := http.MaxBytesReader(w, call.Body, call.MaxBody)

	if call.ContentLength >= 0 {
		body := make([]byte, call.ContentLength)
		_, err := io.ReadFull(in, body)

		return body, err
	}

	var (
		pieces [][]byte
		size   = admission.FirstPiece
	)

	for {
		piece := make([]byte, size)
		n, err := io.ReadFull(in, piece)
		pieces = append(pieces, piece[:n])

		switch {
		case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
			return bytes.Join(pieces, nil), nil
		case err != nil:
			return nil, err

		// The pieces grow as admission counts them: two of the first size, then twice the last.
		case len(pieces) > 1:
			size *= 2
		}
	}
}

// IsJSON tells whether a media type is JSON, or of a format that is JSON.
func IsJSON(contentType string) bool {
	if contentType == "application/json" { // the usual one, without parsing
		return true
	}

	media, _, err := mime.ParseMediaType(contentType)

	return err == nil && (media == "application/json" || strings.HasSuffix(media, "+json"))
}

// ReadObject reads a body that is a JSON object. Unknown members are refused.
func ReadObject(w http.ResponseWriter, c *Call, into any) error {
	body, err := ReadBody(w, c)
	if err != nil {
		return err
	}

	return ParseObject(body, into)
}

// ReadForeignObject is ReadObject of a body that another domain sends. Unknown members
// are ignored, because that domain may run a later release (FORM-004).
func ReadForeignObject(w http.ResponseWriter, c *Call, into any) error {
	body, err := ReadBody(w, c)
	if err != nil {
		return err
	}

	return parseObject(body, into)
}

// ParseObject is ReadObject of a body that was read.
func ParseObject(body []byte, into any) error {
	return parseObject(body, into, json.RejectUnknownMembers(true))
}

func parseObject(body []byte, into any, options ...json.Options) error {
	if _, err := directory.ParseObject(body); err != nil {
		return err
	}

	return directory.UnmarshalBody(body, into, options...)
}
