package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A journey is a transport in virtual time which answers by a function, and keeps
// which address was asked for what, and when.
type journey struct {
	answer func(r *http.Request, attempt int) (*http.Response, error)
	asked  []string
	times  []time.Time
}

func (j *journey) RoundTrip(r *http.Request) (*http.Response, error) {
	j.asked = append(j.asked, r.Method+" "+r.URL.Host)
	j.times = append(j.times, time.Now())

	return j.answer(r, len(j.asked))
}

func (j *journey) hosts() string {
	var hosts []string
	for _, a := range j.asked {
		hosts = append(hosts, a[strings.LastIndexByte(a, ' ')+1:])
	}

	return strings.Join(hosts, " ")
}

// travel returns a client of three nodes over j.
func travel(t *testing.T, j *journey) *Client {
	t.Helper()

	c, err := New(Config{
		Addresses: []string{"https://one", "https://two", "https://three"},
		HTTP:      &http.Client{Transport: j},
	})
	must(t, err)

	return c
}

func response(r *http.Request, status int, header http.Header, body string) *http.Response {
	if header == nil {
		header = http.Header{}
	}

	return &http.Response{StatusCode: status, Header: header, Body: io.NopCloser(strings.NewReader(body)), Request: r}
}

// problem is the answer of a directory that refuses.
func problem(r *http.Request, status int, code string, retryAfter int) *http.Response {
	header := http.Header{"Content-Type": {"application/problem+json"}}
	if retryAfter > 0 {
		header.Set("Retry-After", strconv.Itoa(retryAfter))
	}

	body := fmt.Sprintf(`{"type":"https://ad/problems/%s","detail":"a reason","retry_after":%d}`, code, retryAfter)

	return response(r, status, header, body)
}

func listing(r *http.Request) *http.Response { return response(r, 200, nil, `{"agents":[]}`) }

var (
	errRefused = &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	errBroken  = &net.OpError{Op: "read", Err: errors.New("connection reset by peer")}
)

// A read goes to the next address when one is not reached, answers that it can't,
// or breaks off, and later requests stay with the address that answered.
func TestReadsGoToTheNextAddress(t *testing.T) {
	for name, fail := range map[string]func(*http.Request) (*http.Response, error){
		"is not reached": func(*http.Request) (*http.Response, error) { return nil, errRefused },
		"breaks off":     func(*http.Request) (*http.Response, error) { return nil, errBroken },
		"has no leader": func(r *http.Request) (*http.Response, error) {
			return problem(r, 503, "unavailable", 1), nil
		},
		"is behind proxy": func(r *http.Request) (*http.Response, error) {
			return response(r, 502, nil, "<html>"), nil
		},
		"is cut short": func(r *http.Request) (*http.Response, error) {
			resp := listing(r)
			resp.Body = io.NopCloser(io.MultiReader(strings.NewReader(`{"ag`), brokenReader{}))

			return resp, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				j := &journey{answer: func(r *http.Request, _ int) (*http.Response, error) {
					if r.URL.Host == "one" {
						return fail(r)
					}

					return listing(r), nil
				}}

				c := travel(t, j)
				for range 2 {
					if _, err := c.Lookup(t.Context(), LookupOptions{}); err != nil {
						t.Fatal(err)
					}
				}

				if j.hosts() != "one two two" || c.Address() != "https://two" {
					t.Errorf("asked %s", j.hosts())
				}
			})
		})
	}
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, errBroken }

// When all addresses have failed, the client waits, longer each time, and gives up
// after so many attempts.
func TestRoundsAreApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := &journey{answer: func(*http.Request, int) (*http.Response, error) { return nil, errRefused }}
		addresses := []string{"https://one", "https://two"}

		c, err := New(Config{Addresses: addresses, HTTP: &http.Client{Transport: j}, Attempts: 7})
		must(t, err)

		_, err = c.Lookup(t.Context(), LookupOptions{})
		if !errors.Is(err, ErrUnavailable) || errors.Is(err, ErrOutcomeUnknown) {
			t.Errorf("the error is %v", err)
		}

		if len(j.asked) != 7 {
			t.Fatalf("asked %s", j.hosts())
		}

		for i, bounds := range [][2]time.Duration{{0, 0}, {100, 300}, {0, 0}, {200, 600}, {0, 0}, {400, 1200}} {
			gap := j.times[i+1].Sub(j.times[i])
			if gap < bounds[0]*time.Millisecond || gap > bounds[1]*time.Millisecond {
				t.Errorf("attempt %d comes %v after the one before", i+2, gap)
			}
		}
	})
}

// Retry-After is kept, unless the context ends sooner: then the refusal is returned
// at once.
func TestRetryAfterIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		busy := &journey{}
		busy.answer = func(r *http.Request, attempt int) (*http.Response, error) {
			if attempt == 1 {
				return problem(r, 429, "rate-limited", 7), nil
			}

			return response(r, 204, nil, ""), nil
		}

		c := travel(t, busy)
		if _, err := c.Deregister(t.Context(), "x"); err != nil {
			t.Fatal(err)
		}

		if gap := busy.times[1].Sub(busy.times[0]); gap < 7*time.Second || gap > 8*time.Second ||
			busy.hosts() != "one one" {
			t.Errorf("asked %s, %v apart", busy.hosts(), gap)
		}

		began := time.Now()
		for _, after := range []int{7, 3600} {
			busy.asked = nil
			busy.answer = func(r *http.Request, _ int) (*http.Response, error) {
				return problem(r, 429, "rate-limited", after), nil
			}
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)

			var refused *Error

			_, err := c.Get(ctx, "x")
			if !errors.As(err, &refused) || !errors.Is(err, ErrRateLimited) ||
				refused.RetryAfter() != time.Duration(after)*time.Second {
				t.Errorf("the error is %v", err)
			}

			cancel()

			if len(busy.asked) != 1 || time.Since(began) > 0 {
				t.Errorf("asked %s, for %v", busy.hosts(), time.Since(began))
			}
		}
	})
}

// A change is sent again only if two have the effect of one, or the first had none.
func TestChangesAreRepeatedIfThatIsSafe(t *testing.T) {
	type failure struct {
		name    string
		err     error
		status  int
		code    string
		harmful bool // the change may have been made
	}
	failures := []failure{
		{name: "not reached", err: errRefused},
		{name: "broken off", err: errBroken, harmful: true},
		{name: "no leader", status: 503, code: "unavailable"},
		{name: "overtaken", status: 503, code: "overtaken"},
		{name: "leader lost", status: 503, code: "outcome-unknown", harmful: true},
		{name: "a proxy's", status: 504, harmful: true},
	}

	changes := []struct {
		name       string
		idempotent bool
		do         func(context.Context, *Client) error
	}{
		{"register", true, func(ctx context.Context, c *Client) error {
			_, err := c.Register(ctx, "x", []byte("{}"), RegisterOptions{})
			return err
		}},
		{"register if absent", false, func(ctx context.Context, c *Client) error {
			_, err := c.Register(ctx, "x", []byte("{}"), RegisterOptions{IfAbsent: true})
			return err
		}},
		{"register if matching", false, func(ctx context.Context, c *Client) error {
			_, err := c.Register(ctx, "x", []byte("{}"), RegisterOptions{IfMatch: `"1"`})
			return err
		}},
		{"refresh", true, func(ctx context.Context, c *Client) error { _, err := c.Refresh(ctx, "x", 0); return err }},
		{"deregister", false, func(ctx context.Context, c *Client) error {
			_, err := c.Deregister(ctx, "x")
			return err
		}},
		{"invoke", false, func(ctx context.Context, c *Client) error {
			_, err := c.Invoke(ctx, "x", "", []byte("{}"), InvokeOptions{})
			return err
		}},
		{"invoke by key", true, func(ctx context.Context, c *Client) error {
			_, err := c.Invoke(ctx, "x", "", []byte("{}"), InvokeOptions{IdempotencyKey: "k"})
			return err
		}},
		{"transfer the leadership", false, func(ctx context.Context, c *Client) error {
			return c.Operator().Transfer(ctx, "")
		}},
	}
	for _, change := range changes {
		for _, f := range failures {
			t.Run(change.name+", "+f.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					j := &journey{answer: func(r *http.Request, attempt int) (*http.Response, error) {
						switch {
						case attempt > 1 && r.URL.Path == "/ad/r":
							return response(r, 201, http.Header{"Location": {"/ad/r/1"}}, ""), nil
						case attempt > 1:
							return response(r, 204, nil, ""), nil
						case f.err != nil:
							return nil, f.err
						case f.code == "":
							return response(r, f.status, nil, "<html>"), nil
						}

						return problem(r, f.status, f.code, 1), nil
					}}
					err := change.do(t.Context(), travel(t, j))

					repeated := !f.harmful || change.idempotent
					if repeated != (len(j.asked) == 2) || repeated != (err == nil) {
						t.Errorf("asked %s: %v", j.hosts(), err)
					}

					if err != nil && (!errors.Is(err, ErrOutcomeUnknown) || errors.Is(err, ErrUnavailable)) {
						t.Errorf("the error is %v", err)
					}
				})
			})
		}
	}
}

// A direct client asks once, and tells the failure.
func TestADirectClientAsksOnce(t *testing.T) {
	j := &journey{answer: func(r *http.Request, _ int) (*http.Response, error) {
		return problem(r, 503, "unavailable", 1), nil
	}}

	c := NewDirect("https://one", &http.Client{Transport: j})
	if _, err := c.Get(t.Context(), "x"); !errors.Is(err, ErrUnavailable) || len(j.asked) != 1 {
		t.Errorf("asked %s: %v", j.hosts(), err)
	}
}

// A certificate that does not hold at one node is no reason to ask another.
func TestWhatDoesNotPassIsNotRepeated(t *testing.T) {
	alert := &net.OpError{Op: "remote error", Err: errors.New("tls: bad certificate")}
	for name, answer := range map[string]func(*http.Request, int) (*http.Response, error){
		"an alert": func(*http.Request, int) (*http.Response, error) { return nil, alert },
		"no directory": func(r *http.Request, _ int) (*http.Response, error) {
			return response(r, 200, nil, "<html>"), nil
		},
		"not found": func(r *http.Request, _ int) (*http.Response, error) {
			return problem(r, 404, "not-found", 0), nil
		},
		"an own fault": func(r *http.Request, _ int) (*http.Response, error) {
			return problem(r, 500, "internal", 0), nil
		},
		"another agent": func(r *http.Request, _ int) (*http.Response, error) {
			return problem(r, 503, "agent-unavailable", 1), nil
		},
	} {
		j := &journey{answer: answer}
		if _, err := travel(t, j).Lookup(t.Context(), LookupOptions{}); err == nil || len(j.asked) != 1 {
			t.Errorf("%s: asked %s: %v", name, j.hosts(), err)
		}
	}
}

// A request ends with its context, and is then neither unavailable nor repeated.
func TestARequestEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	j := &journey{answer: func(r *http.Request, _ int) (*http.Response, error) {
		cancel()
		return nil, r.Context().Err()
	}}

	_, err := travel(t, j).Get(ctx, "x")
	if !errors.Is(err, context.Canceled) || errors.Is(err, ErrUnavailable) || len(j.asked) != 1 {
		t.Errorf("asked %s: %v", j.hosts(), err)
	}
}

// A refusal has a kind, and is of no other.
func TestRefusalsHaveAKind(t *testing.T) {
	kinds := []error{
		ErrInvalid, ErrUnauthenticated, ErrForbidden, ErrQuota, ErrNotFound, ErrAmbiguous, ErrConflict, ErrPrecondition,
		ErrRateLimited, ErrUnavailable, ErrOutcomeUnknown, ErrAgent, ErrAnswer,
	}
	for _, x := range []struct {
		status int
		code   string
		kind   error
	}{
		{400, "bad-document", ErrInvalid}, {413, "too-large", ErrInvalid}, {422, "idempotency-key-reused", ErrInvalid},
		{401, "unauthenticated", ErrUnauthenticated}, {403, "forbidden", ErrForbidden},
		{403, "foreign-registration", ErrForbidden},
		{403, "quota-exceeded", ErrQuota}, {404, "not-found", ErrNotFound}, {404, "registration-expired", ErrNotFound},
		{300, "", ErrAmbiguous}, {409, "agent-name-taken", ErrConflict}, {412, "precondition-failed", ErrPrecondition},
		{429, "rate-limited", ErrRateLimited}, {503, "unavailable", ErrUnavailable},
		{503, "outcome-unknown", ErrOutcomeUnknown},
		{404, "agent-not-found", ErrAgent}, {502, "agent-failed", ErrAgent}, {429, "agent-rate-limited", ErrAgent},
		{500, "internal", nil}, {404, "", nil}, {403, "", nil}, {502, "", ErrUnavailable},
	} {
		c := NewDirect("https://one", &http.Client{Transport: answering(func(r *http.Request) (*http.Response, error) {
			if x.code == "" {
				return response(r, x.status, nil, "<html>"), nil
			}

			return problem(r, x.status, x.code, 0), nil
		})})
		_, err := c.Get(t.Context(), "x")

		var refused *Error
		if !errors.As(err, &refused) || refused.Status != x.status || refused.Code != x.code ||
			x.code != "" && refused.Detail != "a reason" {
			t.Errorf("%d %s is %+v", x.status, x.code, err)
		}

		for _, kind := range kinds {
			if errors.Is(err, kind) != errors.Is(x.kind, kind) {
				t.Errorf("%d %s: errors.Is(%v) is %v", x.status, x.code, kind, errors.Is(err, kind))
			}
		}
	}
}

func TestConfigNamesTheFieldThatIsWrong(t *testing.T) {
	for field, cfg := range map[string]Config{
		"Addresses":    {},
		"plain http":   {Addresses: []string{"http://ad.alpha.example"}},
		"the address":  {Addresses: []string{"https://ad.alpha.example/path"}},
		"is not https": {Addresses: []string{"https://ok", "ad.alpha.example:8400"}},
		"Attempts":     {Addresses: []string{"https://ok"}, Attempts: -1},
		"Timeout":      {Addresses: []string{"https://ok"}, Timeout: -1},
	} {
		if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}

	for _, address := range []string{
		"https://ad.alpha.example", "https://ad.alpha.example:8400/",
		"http://127.0.0.1:8400", "http://[::1]:1", "http://localhost:1",
	} {
		if _, err := New(Config{Addresses: []string{address}}); err != nil {
			t.Error(err)
		}
	}
}

// A server that is none of the directory's nodes, by its certificate or because it speaks no TLS, is no node
// a moment later either: each address is asked once, and another one may be right.
func TestAWrongServerIsNotAskedAgain(t *testing.T) {
	for name, wrong := range map[string]error{
		"of another domain": &ServerError{Host: "one", Err: errors.New("a node of another domain")},
		"a wrong port":      fmt.Errorf("get: %w", ErrWrongServer),
		"without TLS":       fmt.Errorf("get: %w", http.ErrSchemeMismatch),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				all := &journey{answer: func(*http.Request, int) (*http.Response, error) { return nil, wrong }}

				_, err := travel(t, all).Do(t.Context(), http.MethodGet, "/ad/l", nil, nil)
				if !errors.Is(err, wrong) || len(all.asked) != 3 || time.Since(began) >= time.Second {
					t.Errorf("%v after %s: asked %s", err, time.Since(began), all.hosts())
				}

				one := &journey{answer: func(r *http.Request, _ int) (*http.Response, error) {
					if r.URL.Host == "three" {
						return response(r, http.StatusOK, nil, "{}"), nil
					}

					return nil, wrong
				}}

				if _, err := travel(t, one).Do(t.Context(), http.MethodGet, "/ad/l", nil, nil); err != nil {
					t.Errorf("with one right address: %v", err)
				}
			})
		})
	}
}
