package egress_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/roster-mesh/roster/directory/egress"
)

// Requirement: FLD-012
func TestAnswersAreUnpackedOrTheirCodingIsNamed(t *testing.T) {
	var packed bytes.Buffer

	w := gzip.NewWriter(&packed)
	io.WriteString(w, "content")
	w.Close()

	for _, tc := range []struct{ coding, body, want, fault string }{
		{"", "content", "content", ""},
		{"Identity", "content", "content", ""},
		{"gzip", packed.String(), "content", ""},
		{"X-Gzip", packed.String(), "content", ""},
		{"gzip", "", "", ""},
		{"gzip", "content", "", "not in gzip"},
		{"zstd", "content", "", `"zstd"`},
		{"gzip, br", "content", "", `"gzip, br"`},
	} {
		resp := &http.Response{Header: http.Header{}, Body: io.NopCloser(strings.NewReader(tc.body))}
		if tc.coding != "" {
			resp.Header.Set("Content-Encoding", tc.coding)
		}

		var got []byte

		err := egress.Unpack(resp)
		if err == nil {
			got, err = io.ReadAll(resp.Body)
		}

		if string(got) != tc.want || (err != nil) != (tc.fault != "") ||
			err != nil && (!errors.Is(err, egress.ErrCoding) || !strings.Contains(err.Error(), tc.fault)) {
			t.Errorf("%q: %q, %v", tc.coding, got, err)
		}
	}
}
