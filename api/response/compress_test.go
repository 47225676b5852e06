package response

import "testing"

func TestAcceptEncoding(t *testing.T) {
	for value, want := range map[string]bool{
		"": false, "gzip": true, "GZip": true, "x-gzip": true, "deflate, gzip": true, "gzip;q=0": false,
		"gzip; q=0.001": true, "*": true,
		"*;q=0": false, "gzip;q=0, *": false, "identity": false, "identity, gzip": true, "gzip;q=0.5, identity": false,
		"gzip;q=much": false, "br": false, ",": false,
	} {
		if got := acceptsGzip([]string{value}); got != want {
			t.Errorf("Accept-Encoding: %s is %v", value, got)
		}
	}

	if !acceptsGzip([]string{"br", "gzip"}) {
		t.Error("two lines are not one list")
	}
}
