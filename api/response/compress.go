package response

import (
	"bytes"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/klauspost/compress/gzip"

	"github.com/roster-mesh/roster/api/request"
)

// minCompressed is the least size of a body that is compressed, in bytes: a body that
// fits into one packet gains nothing.
const minCompressed = 1400

// gzips are idle compressors. They favour speed, because an answer is compressed each
// time.
var gzips = sync.Pool{New: func() any {
	z, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed) // no error: the level is valid
	return z
}}

// Compresses tells whether the answer to r is compressed: the same for its entity tag
// and its body.
func Compresses(r *http.Request, contentType string, body []byte) bool {
	return len(body) >= minCompressed && request.IsJSON(contentType) && acceptsGzip(r.Header.Values("Accept-Encoding"))
}

// acceptsGzip tells whether gzip is preferred to no coding, or as good (RFC 9110, 12.5.3).
func acceptsGzip(values []string) bool {
	weights := map[string]float64{}
	for item := range strings.SplitSeq(strings.Join(values, ","), ",") {
		coding, params, _ := strings.Cut(item, ";")

		weight := 1.0
		if name, q, ok := strings.Cut(params, "="); ok && strings.EqualFold(strings.TrimSpace(name), "q") {
			weight, _ = strconv.ParseFloat(strings.TrimSpace(q), 64) // 0 if it is not a number
		}

		if coding = strings.ToLower(strings.TrimSpace(coding)); coding == "x-gzip" {
			coding = "gzip"
		}

		if coding != "" {
			weights[coding] = weight
		}
	}

	weight, named := weights["gzip"]
	if !named {
		weight = weights["*"]
	}

	return weight > 0 && weight >= weights["identity"]
}

// Compress returns body in gzip's format.
func Compress(body []byte) []byte {
	z := gzips.Get().(*gzip.Writer)
	defer gzips.Put(z)

	var buf bytes.Buffer
	buf.Grow(len(body) / 3)
	z.Reset(&buf)
	_, _ = z.Write(body) // a buffer takes everything
	_ = z.Close()

	return buf.Bytes()
}

// vary names Accept-Encoding in Vary if the answer depends on it.
func vary(h http.Header, contentType string) {
	if h.Get("Vary") == "" && request.IsJSON(contentType) {
		h.Set("Vary", "Accept-Encoding")
	}
}
