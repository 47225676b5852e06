package sse_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/roster-mesh/roster/directory/sse"
)

// Whatever bytes a stream has, its reader returns or ends; an event is within the bound, and
// reads the same when it is written again.
func FuzzReader(f *testing.F) {
	f.Add([]byte("retry: 2000\n\nevent: added\nid: 1.2.3\ndata: {\"a\":1}\n\n: nothing\nid: 4\n\n"))
	f.Add([]byte("data: {\r\ndata:}\r\n\r\nid\ndata\n\nevent:x\n\n"))
	f.Add([]byte("data: [1]\n\nid: \x00\ndata: 2"))
	f.Fuzz(func(t *testing.T, stream []byte) {
		const most = 1 << 10

		reader := sse.NewReader(bytes.NewReader(stream), most, "")
		for {
			event, err := reader.Next()
			if err != nil {
				return
			}

			if len(event.Data)+len(event.Others) > 2*most {
				t.Fatalf("%d bytes of data, %d of others", len(event.Data), len(event.Others))
			}

			written := string(event.Others) + "\n"
			if event.HasData {
				data := strings.ReplaceAll(string(event.Data), "\n", "\ndata: ")
				written = fmt.Sprintf("%sdata: %s\n\n", event.Others, data)
			}

			again, err := sse.NewReader(strings.NewReader(written), 4*most, "").Next()
			if err != nil || again.Name != event.Name || again.HasData != event.HasData ||
				!bytes.Equal(again.Data, event.Data) || !bytes.Equal(again.Others, event.Others) {
				t.Fatalf("%+v is read as %+v again (%v)", event, again, err)
			}
		}
	})
}
