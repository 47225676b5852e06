package consensus

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// A lineLog has the lines of a log.
type lineLog struct {
	mu    sync.Mutex // guards lines
	lines bytes.Buffer
}

func (l *lineLog) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()

	return l.lines.Write(line)
}

func (l *lineLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()

	return l.lines.String()
}

// A node whose configuration has the address of something else, or another authority, says within a
// second which address that is and what to correct, and says it once.
func TestANodeSaysAtOnceThatItsConfigurationIsWrong(t *testing.T) {
	for name, c := range map[string]struct {
		tune func(d *domain, c *Config)
		want string
	}{
		"the port of an HTTP listener without TLS": {func(_ *domain, c *Config) {
			c.Join = []string{"plain.alpha.test:80"}
		}, "listen.cluster"},
		"an authority of another domain": {func(d *domain, c *Config) {
			c.ServerTLS, c.ClientTLS = newCA(d.t).configs(d.t, c.Node)
		}, "identity.bundle"},
	} {
		t.Run(name, func(t *testing.T) {
			inDomain(t, 1, nil, func(t *testing.T, d *domain) {
				plain := &http.Server{ReadHeaderTimeout: time.Second}
				listener := d.net.listen("plain.alpha.test:80")

				var served sync.WaitGroup
				served.Go(func() { _ = plain.Serve(listener) })

				defer func() { _ = plain.Close(); served.Wait() }()

				log := &lineLog{}
				i := d.newcomer(func(config *Config) {
					config.Logger = slog.New(slog.NewTextHandler(log, nil))
					c.tune(d, config)
				})

				time.Sleep(time.Second)

				if text := log.String(); !strings.Contains(text, c.want) {
					t.Errorf("it says within a second:\n%s", text)
				}

				time.Sleep(time.Minute)

				text := log.String()
				if n := strings.Count(text, "level=WARN msg=\"an address is not"); n != 1 {
					t.Errorf("it says so %d times:\n%s", n, text)
				}

				if err := d.nodes[i].Ready(); err == nil || !strings.Contains(fmt.Sprint(err), c.want) {
					t.Errorf("the node's readiness says %v", err)
				}
			})
		})
	}
}
