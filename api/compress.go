package api

import (
	"bytes"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/klauspost/compress/gzip"
)

// minCompressed is from how many bytes on a body is compressed: what fits into
// one packet gains nothing.
const minCompressed = 1400

// gzips are compressors that nobody uses now. They favour speed: an answer is
// compressed each time.
var gzips = sync.Pool{New: func() any {
	z, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed) // the level is one
	return z
}}

// compresses is whether the answer to r is compressed. It is asked for the
// entity tag and for the body, and says the same to both. Compression is done
// here and not around the handlers, as gzhttp does it, since HEAD and 304 must
// tell of the compressed form too, and a strong entity tag must be of it.
func compresses(r *http.Request, contentType string, body []byte) bool {
	return len(body) >= minCompressed && isJSON(contentType) && acceptsGzip(r.Header.Values("Accept-Encoding"))
}

// acceptsGzip is whether gzip is wanted at least as much as no coding at all
// (RFC 9110, 12.5.3).
func acceptsGzip(values []string) bool {
	weights := map[string]float64{}
	for item := range strings.SplitSeq(strings.Join(values, ","), ",") {
		coding, params, _ := strings.Cut(item, ";")
		weight := 1.0
		if name, q, ok := strings.Cut(params, "="); ok && strings.EqualFold(strings.TrimSpace(name), "q") {
			weight, _ = strconv.ParseFloat(strings.TrimSpace(q), 64) // 0 where it is none
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

// compress returns body in gzip's format.
func compress(body []byte) []byte {
	z := gzips.Get().(*gzip.Writer)
	defer gzips.Put(z)
	var b bytes.Buffer
	b.Grow(len(body) / 3)
	z.Reset(&b)
	_, _ = z.Write(body) // a buffer takes everything
	_ = z.Close()
	return b.Bytes()
}

// vary says that the answer depends on Accept-Encoding, if it can.
func vary(h http.Header, contentType string) {
	if h.Get("Vary") == "" && isJSON(contentType) {
		h.Set("Vary", "Accept-Encoding")
	}
}
