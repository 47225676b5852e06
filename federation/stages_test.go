package federation

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/roster-mesh/roster/federation/replica"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// What fails in one stage ends the others, and what came before it is kept.
func TestAPullThatFailsHalfwayKeepsWhatItHas(t *testing.T) {
	inBench(t, func(t *testing.T, b *bench) {
		b.origin.registers(3*protocol.MaxDigests, 600)

		b.world.tap = func(_ string, r *http.Request, body []byte) []byte {
			// the third
			if since, _ := strconv.Atoi(r.URL.Query().Get("since")); r.URL.Path == protocol.PathPages &&
				since > protocol.MaxDigests+500 {
				return body[:len(body)-9]
			}

			return body
		}

		o := b.beta.origins.Get(alpha)
		if err := b.beta.pulls(o, &o.Mesh, b.giver()); protocol.CodeOf(err) != protocol.CodeFormat {
			t.Fatalf("a damaged page: %v", err)
		}

		if n := b.beta.view.Origin(alpha).Len(); n != 2*protocol.MaxDigests {
			t.Fatalf("%d are shown of the two pages that came", n)
		}

		b.world.tap = nil
		b.pull()

		if n := b.beta.view.Origin(alpha).Len(); n != 3*protocol.MaxDigests {
			t.Errorf("%d shown", n)
		}
	})
}

// Records come in the best coding that their caller takes, and say the same in each.
func TestRecordsInEveryCoding(t *testing.T) {
	inBench(t, func(t *testing.T, b *bench) {
		d := b.origin.regs[b.origin.register("agent", 600)].announced

		want := ""
		for _, c := range []struct{ accept, coding string }{
			{"", ""}, {"br", ""}, {"gzip", "gzip"}, {"gzip, zstd", "zstd"}, {"zstd", "zstd"},
		} {
			body := protocol.RecordsRequest{Origin: alpha.Name(), Names: [][2]directory.Hash{{d.H, d.M}}}.Bytes()
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, protocol.PathRecords,
				strings.NewReader(string(body)))
			r.Header.Set(callerHeader, nodeID(beta, 1).String())
			r.Header.Set("Accept-Encoding", c.accept)
			w := httptest.NewRecorder()
			b.alpha.http.ServeHTTP(w, r)

			res := w.Result()
			if got := res.Header.Get("Content-Encoding"); got != c.coding {
				t.Errorf("%q is answered as %q", c.accept, got)
			}

			plain, done, err := b.beta.codecs.Decompress(res.Header.Get("Content-Encoding"), res.Body)
			must(t, err)

			text, err := io.ReadAll(plain)
			done()

			if err != nil || !strings.Contains(string(text), `"record":"`) || want != "" && string(text) != want {
				t.Errorf("%q: %v, %.80q", c.accept, err, text)
			}

			want = string(text)
		}

		res := &http.Response{Header: http.Header{"Content-Encoding": {"br"}}, Body: http.NoBody}
		if _, _, err := b.beta.codecs.Decompress(res.Header.Get("Content-Encoding"), res.Body); err == nil {
			t.Error("an unknown coding was read")
		}
	})
}

// Whatever the header of the record before was, none is no header.
func TestARecordHasAHeader(t *testing.T) {
	inBench(t, func(t *testing.T, b *bench) {
		n := protocol.NameOf(b.origin.regs[b.origin.register("agent", 600)].announced)
		record, _, err := b.alpha.recordOf(alpha, beta, n)
		must(t, err)
		good, err := readRecord(n, record, "")
		must(t, err)

		if _, err := readRecord(n, record, good.Header); err != nil {
			t.Errorf("with the header of the record before: %v", err)
		}

		for _, bare := range []string{record[strings.Index(record, "."):],
			"e30" + record[strings.Index(record, "."):]} {
			for _, before := range []string{"", good.Header} {
				if _, err := readRecord(n, bare, before); err == nil {
					t.Errorf("%.20q is taken behind %q", bare, before)
				}
			}
		}
	})
}

// The short way to read a line and the parser agree, and what is no line is refused.
func TestReadLine(t *testing.T) {
	l := protocol.RecordLine{H: directory.HashOf([]byte("h")), M: directory.HashOf([]byte("m")), Record: "a.b.c~d~"}
	failed := protocol.RecordLine{H: l.H, M: l.M, Error: "not_found"}

	spaced := strings.Replace(string(l.Append(nil)), ":", ": ", 1)
	for in, want := range map[string]protocol.RecordLine{string(l.Append(nil)): l, string(failed.Append(nil)): failed,
		spaced: l} {
		if got, err := protocol.ParseRecordLine([]byte(strings.TrimSuffix(in, "\n"))); err != nil || got != want {
			t.Errorf("%s: %+v, %v", in, got, err)
		}
	}

	for _, disclosures := range [][]string{nil, {"d"}, {`not"base64`, "d"}} {
		parts := protocol.RecordParts{Header: "h", Payload: []byte("payload"), Signature: "s", Disclosures: disclosures}
		want := protocol.RecordLine{H: l.H, M: l.M, Record: parts.Text()}

		got := protocol.AppendRecordLine(nil, protocol.RecordName{H: l.H, M: l.M}, parts)
		if read, err := protocol.ParseRecordLine(bytes.TrimSuffix(got, []byte("\n"))); err != nil || read != want {
			t.Errorf("%s is read as %+v, %v", got, read, err)
		}
	}

	for _, bad := range []string{
		"", "{}x", strings.Replace(string(l.Append(nil)), "a.b", `a"b`, 1),
		strings.Replace(string(l.Append(nil)), l.H.String(), l.H.String()[:42]+"!", 1),
		strings.Replace(string(l.Append(nil)), `"}`, `","record":"x"}`, 1),
	} {
		if got, err := protocol.ParseRecordLine([]byte(strings.TrimSuffix(bad, "\n"))); err == nil {
			t.Errorf("%s is read as %+v", bad, got)
		}
	}
}

// The short way to read a request and the parser agree, and everything else is refused.
func TestReadRequest(t *testing.T) {
	name := [2]directory.Hash{directory.HashOf([]byte("h")), directory.HashOf([]byte("m"))}
	for n := range 3 {
		want := protocol.RecordsRequest{Origin: "alpha.test", Names: slices.Repeat([][2]directory.Hash{name}, n)}
		text := string(want.Bytes())

		for _, body := range []string{text, strings.ReplaceAll(text, ",", ", "), text + "\n"} {
			got, err := protocol.ParseRecordsRequest([]byte(body))
			if err != nil || got.Origin != want.Origin || !slices.Equal(got.Names, want.Names) {
				t.Errorf("%s is read as %+v, %v", body, got, err)
			}
		}
	}

	good := string(protocol.RecordsRequest{Origin: "alpha.test", Names: [][2]directory.Hash{name, name}}.Bytes())
	for _, bad := range []string{
		"", "{}x", good + "]", strings.Replace(good, "alpha", "al\"ha", 1), strings.Replace(good, "],[", "];[", 1),
		strings.Replace(good, name[1].String(), name[1].String()[:42]+"!", 1), strings.Replace(good, `","`, `";"`, 2),
		strings.TrimSuffix(good, "}"), strings.Replace(good, `[["`, `[{"`, 1),
	} {
		if got, err := protocol.ParseRecordsRequest([]byte(bad)); err == nil {
			t.Errorf("%s is read as %+v", bad, got)
		}
	}
}

// Until they are written, three pages wait at most, two of them with their records, however many
// the origin has, and a fourth is written.
//
// Requirement: MESH-005
func TestWhatAPullHasInHandIsBounded(t *testing.T) {
	const each = 10
	for _, pages := range []int{4, 20} {
		inBench(t, func(t *testing.T, b *bench) {
			b.origin.register("first", 600)
			b.pull() // and with it the keys

			b.origin.registers(pages*each, 6000)

			var pulled, fetched atomic.Int64 // pages, and their records

			b.world.tap = func(_ string, r *http.Request, body []byte) []byte {
				switch r.URL.Path {
				case protocol.PathPages:
					pulled.Add(1)
				case protocol.PathRecords:
					fetched.Add(1)
				}

				return body
			}
			dial := b.beta.Mesh.client.HTTP
			b.beta.Mesh.client.HTTP = func(td spiffeid.TrustDomain) *http.Client { // small pages are as good
				return &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
					r.URL.RawQuery += fmt.Sprint("&limit=", each)
					return dial(td).Do(r)
				})}
			}
			ctx, cancel := context.WithCancel(t.Context())
			o := b.beta.origins.Get(alpha)

			all, end := b.beta.follower.bring(ctx, pullRun{o, &o.Mesh, b.giver(), unlimited(ctx),
				o.Since(&o.Mesh)})
			for taken := range pages {
				synctest.Wait() // nothing more comes until one is taken

				came, whole := int(pulled.Load()), int(fetched.Load())
				if came != min(taken+3, pages) || whole != min(taken+2, pages) {
					t.Errorf("%d of %d pages are taken, %d came, and the records of %d", taken, pages, came, whole)
				}

				if p := <-all; p.err != nil || len(p.opened) != each {
					t.Fatalf("a page of %d records: %v", len(p.opened), p.err)
				}
			}

			cancel()
			end()
		})
	}
}

// A node that holds a request holds up no pull whose page before it was refused.
//
// Requirement: MESH-017
func TestARefusedPageEndsTheNextRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := active(alpha, 1)
		b := newPeering(t, &p)
		b.origin.registers(protocol.MaxDigests+1, 3600)

		ended := make(chan struct{})

		b.world.hold = func(r *http.Request, _ func()) bool {
			switch {
			case r.URL.Path == protocol.PathRecords: // of the first page
				<-ended
				return false
			case r.URL.Path != protocol.PathPages || r.URL.Query().Get("since") == "0":
				return false
			}

			p.State = directory.PeeringTerminated
			b.beta.reconcile()
			close(ended)
			<-r.Context().Done()

			return true
		}

		began, origin := time.Now(), b.beta.origins.Get(alpha)

		err := b.beta.pulls(origin, &origin.Mesh, b.giver())
		if took := time.Since(began); !errors.Is(err, replica.ErrPeeringEnd) || took > time.Second {
			t.Errorf("the pull ended after %s: %v", took, err)
		}
	})
}

// A node that goes on with what follows a gap, whatever it is asked for, is left.
//
// Requirement: MESH-017
func TestWhoHasNoChainIsLeft(t *testing.T) {
	inBench(t, func(t *testing.T, b *bench) {
		b.origin.registers(3, 600)

		late, err := b.alpha.publisher.Page(directory.Mesh, 2, 10, true)
		must(t, err)
		b.world.tap = func(_ string, r *http.Request, body []byte) []byte {
			if r.URL.Path == protocol.PathPages {
				return []byte(late.Text)
			}

			return body
		}

		o := b.beta.origins.Get(alpha)
		if err := b.beta.pulls(o, &o.Mesh, b.giver()); !errors.Is(err, errGap) {
			t.Errorf("%v", err)
		}
	})
}

// The records of a page come by four requests at once. However large they are, a page takes four
// answers, and the rest is asked for later.
//
// Requirement: MESH-005
func TestThePartsOfAPage(t *testing.T) {
	const each = 400

	for name, c := range map[string]struct {
		document int // bytes
		whole    bool
	}{"small": {document: 100, whole: true}, "large": {document: 64_000}} {
		t.Run(name, func(t *testing.T) {
			inBench(t, func(t *testing.T, b *bench) {
				b.origin.register("first", 600)
				b.pull() // and with it the keys

				for i := range each {
					b.origin.registerDocument(fmt.Sprint("agent-", i), 6000, sized(t, c.document))
				}

				var requests atomic.Int64

				together := make(chan struct{})
				b.world.tap = func(_ string, r *http.Request, body []byte) []byte {
					if r.URL.Path == protocol.PathRecords {
						if requests.Add(1) == fetchParts {
							close(together)
						}

						<-together // which never ends if they come one after the other
					}

					return body
				}

				o := b.beta.origins.Get(alpha)
				made, err := b.alpha.publisher.Page(directory.Mesh, o.Since(&o.Mesh), each, false)
				must(t, err)

				page := b.beta.receiver.receive(t.Context(), replica.Sender{Domain: alpha}, b.giver(), made.Text,
					replica.Ahead{})
				b.beta.receiver.prefetch(t.Context(), &page)
				must(t, page.err)

				if n := requests.Load(); n != fetchParts {
					t.Errorf("%d requests", n)
				}

				if n := len(page.records); n == 0 || n > each || (n == each) != c.whole {
					t.Errorf("%d of %d records", n, each)
				}
			})
		})
	}
}

// A relay reads a bounded part of an answer into memory, and gives all records.
func TestARelayReadsAFewRecordsAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const count = 40

		b := newBench(t, nil)
		for i := range count {
			b.origin.registerDocument(fmt.Sprint("agent-", i), 6000, sized(t, 50_000))
		}

		b.pull()

		var names []protocol.RecordName
		for _, r := range b.origin.regs {
			names = append(names, protocol.NameOf(r.announced))
		}

		id := b.beta.origins.Get(alpha).ShownStream(directory.Mesh).Id

		const most = 256 << 10
		some, err := b.beta.store.Find(id, names, most)
		must(t, err)

		size := 0
		for _, record := range some[:len(some)-1] {
			size += len(record.Stored(protocol.RecordName{}))
		}

		if size >= most || len(some) < 2 || slices.Contains(some, nil) {
			t.Errorf("%d records, %d bytes of them before the last", len(some), size)
		}

		absent := protocol.RecordName{H: directory.HashOf([]byte("absent"))}
		names = slices.Insert(names, count/2, absent)
		at := 0

		for record, err := range b.beta.holdings.recordsOf(alpha, beta, names) {
			must(t, err)

			if record.name != names[at] || record.found != (names[at] != absent) {
				t.Errorf("the record %d: %v, found: %v", at, record.name, record.found)
			}

			at++
		}

		if at != len(names) {
			t.Errorf("%d results for %d names", at, len(names))
		}
	})
}

// sized returns a document with a member of that many bytes, for any registration.
func sized(t *testing.T, size int) func(uint64) directory.Document {
	t.Helper()

	text := fmt.Sprintf(`{"base":"https://agent.example/api","note":"%s"}`, strings.Repeat("x", size))
	doc, err := directory.ParseDocument(directory.KindAD, []byte(text))
	must(t, err)

	return func(uint64) directory.Document { return doc }
}
