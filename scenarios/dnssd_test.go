package scenarios

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"go.yaml.in/yaml/v3"

	"github.com/roster-mesh/roster/node/config"
	"github.com/roster-mesh/roster/node/dnssd"
	"github.com/roster-mesh/roster/trust"
)

// A cable is two network namespaces with one Ethernet between them and nothing
// else, so that no multicast of a test leaves it.
type cable struct {
	t    *testing.T
	ends [2]string // the namespaces
}

// address is that of one end.
func (c *cable) address(end int) string { return fmt.Sprintf("10.77.0.%d", end+1) }

// device is the name of the cable's interface, the same at both ends.
const device = "cable0"

// newCable makes the namespaces; they are gone when the test ends.
func newCable(t *testing.T) *cable {
	t.Helper()

	story(t)

	if os.Getuid() != 0 {
		t.Skip("needs root, for network namespaces")
	}

	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("needs iproute2's ip, for network namespaces")
	}

	c := &cable{t: t}
	for end := range c.ends {
		name := fmt.Sprintf("roster-%d-%d", os.Getpid(), end)
		if out, err := exec.Command("ip", "netns", "add", name).CombinedOutput(); err != nil {
			t.Skipf("network namespaces can't be made here: %v: %s", err, out)
		}

		t.Cleanup(func() { c.ip("netns", "del", name) })
		c.ends[end] = name
	}

	c.ip("-n", c.ends[0], "link", "add", device, "type", "veth", "peer", "name", device, "netns", c.ends[1])

	for end, name := range c.ends {
		c.ip("-n", name, "link", "set", "lo", "up")
		c.ip("-n", name, "addr", "add", c.address(end)+"/24", "dev", device)
		c.ip("-n", name, "link", "set", device, "up")
		c.ip("-n", name, "route", "add", "default", "via", c.address(1-end)) // as a host has one
	}

	return c
}

func (c *cable) ip(args ...string) {
	c.t.Helper()

	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		c.t.Errorf("ip %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

// command is a command at one end.
func (c *cable) command(end int, args ...string) *exec.Cmd {
	return exec.Command("ip", append([]string{"netns", "exec", c.ends[end]}, args...)...)
}

// serve runs a node of a domain of its own at the first end until stop is called,
// with DNS-SD as given, and waits until it is ready.
func (c *cable) serve(program string, announced dnssd.Config) (stop func(), stderr *bytes.Buffer) {
	c.t.Helper()
	dir := c.t.TempDir()
	td := spiffeid.RequireTrustDomainFromString("alpha.test")
	check := func(err error) {
		c.t.Helper()

		if err != nil {
			c.t.Fatal(err)
		}
	}
	ca, err := trust.NewCA(td, time.Now())
	check(err)
	svid, err := ca.Issue(trust.NodePath+"1", time.Hour, time.Now())
	check(err)
	cfg := config.Default()
	cfg.TrustDomain, cfg.PublicURL, cfg.Data = td, "https://ad.alpha.test", filepath.Join(dir, "data")
	cfg.Identity = config.Identity{Cert: filepath.Join(dir, "node.pem"), Key: filepath.Join(dir, "node.key"),
		Bundle: filepath.Join(dir, "bundle.pem")}
	check(trust.WriteSVID(svid, cfg.Identity.Cert, cfg.Identity.Key))
	bundle, _ := ca.PEM()
	check(os.WriteFile(cfg.Identity.Bundle, bundle, 0o600))
	check(os.MkdirAll(cfg.Data, 0o700))
	cfg.Members = []config.Member{{ID: svid.ID, Cluster: "127.0.0.1:8402",
		API: "https://" + net.JoinHostPort(c.address(0), "8400")}}
	cfg.Gossip.Enabled = false
	cfg.DNSSD = announced
	text, err := yaml.Marshal(&cfg)
	check(err)
	file := filepath.Join(dir, "node.yaml")
	check(os.WriteFile(file, text, 0o600))

	stderr = &bytes.Buffer{}
	cmd := c.command(0, program, "serve", "--config", file)
	cmd.Stderr = stderr
	check(cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	stop = sync.OnceFunc(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // ip netns exec becomes the program itself
		select {
		case err := <-ended:
			if err != nil {
				c.t.Errorf("the node ended with %v: %s", err, stderr)
			}
		case <-time.After(20 * time.Second):
			_ = cmd.Process.Kill()
			c.t.Errorf("the node did not end: %v", <-ended)
		}
	})
	c.t.Cleanup(stop)

	for bound := time.Now().Add(30 * time.Second); ; {
		if err := c.command(0, "bash", "-c",
			"exec 3<>/dev/tcp/127.0.0.1/8401 && printf 'GET /readyz HTTP/1.0\\r\\nHost: localhost\\r\\n\\r\\n' >&3 && "+
				"grep -q '200 OK' <&3").Run(); err == nil {
			return stop, stderr
		}

		select {
		case err := <-ended:
			ended <- err
			c.t.Fatalf("the node ended with %v: %s", err, stderr)
		case <-time.After(100 * time.Millisecond):
		}

		if time.Now().After(bound) {
			c.t.Fatalf("the node is not ready: %s", stderr)
		}
	}
}

// browser is a browser of other people's making, python-zeroconf. It asks when it starts, and
// is then silent for longer than the test. It prints the first service that it hears of.
const browser = `
import queue, sys
from zeroconf import ServiceBrowser, ServiceListener, Zeroconf

heard = queue.Queue()

class Listener(ServiceListener):
    def add_service(self, zc, kind, name): heard.put(name)
    def remove_service(self, zc, kind, name): pass
    def update_service(self, zc, kind, name): pass

zc = Zeroconf(interfaces=[sys.argv[1]])
ServiceBrowser(zc, "_ad._tcp.local.", Listener(), delay=3600000)
print("ready", flush=True)
name = heard.get()
info = zc.get_service_info("_ad._tcp.local.", name, timeout=1)
print(name, info.port, info.parsed_addresses()[0], info.properties[b"td"].decode(), flush=True)
`

// browse starts the browser at the second end. The function that it returns fails unless the
// browser hears of the node within three seconds of its announcement, of which stderr has the
// line. Without python-zeroconf it does nothing.
func (c *cable) browse() (heard func(stderr fmt.Stringer)) {
	c.t.Helper()

	const python = "/usr/bin/python3" // that of the system's packages

	if err := exec.Command(python, "-c", "import zeroconf").Run(); err != nil {
		c.t.Log("without python3-zeroconf no other browser listens")
		return func(fmt.Stringer) {}
	}

	cmd := c.command(1, python, "-c", browser, c.address(1))
	out, err1 := cmd.StdoutPipe()

	var complaints bytes.Buffer
	cmd.Stderr = &complaints

	if err := errors.Join(err1, cmd.Start()); err != nil {
		c.t.Fatal(err)
	}

	c.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})

	type line struct {
		text string
		at   time.Time
	}

	lines := make(chan line, 2)

	go func() {
		defer close(lines)

		for scanner := bufio.NewScanner(out); scanner.Scan(); {
			lines <- line{scanner.Text(), time.Now()}
		}
	}()

	if ready := <-lines; ready.text != "ready" {
		c.t.Fatalf("the browser says %q: %s", ready.text, &complaints)
	}

	return func(stderr fmt.Stringer) {
		c.t.Helper()

		var got line
		select {
		case got = <-lines:
		case <-time.After(5 * time.Second):
		}

		if !strings.HasSuffix(got.text, "._ad._tcp.local. 8400 "+c.address(0)+" alpha.test") {
			c.t.Fatalf("the browser hears %q: %s", got.text, &complaints)
		}

		var announced struct {
			Time time.Time `json:"time"`
		}

		for said := range strings.Lines(stderr.String()) {
			if strings.Contains(said, "announcing the directory") {
				if err := json.Unmarshal([]byte(said), &announced); err != nil {
					c.t.Fatalf("%s: %v", said, err)
				}
			}
		}

		if took := got.at.Sub(announced.Time); announced.Time.IsZero() || took > 3*time.Second {
			c.t.Errorf("the browser hears of the node %s after its announcement", took)
		}
	}
}

// find runs roster find at the second end.
func (c *cable) find(program string, args ...string) []map[string]any {
	c.t.Helper()
	cmd := c.command(1, append([]string{program, "find", "-o", "json"}, args...)...)

	var notes bytes.Buffer
	cmd.Stderr = &notes

	out, err := cmd.Output()
	if err != nil {
		c.t.Fatalf("roster find: %v: %s", err, &notes)
	}

	var answer struct {
		Directories []map[string]any `json:"directories"`
	}
	if err := json.Unmarshal(out, &answer); err != nil {
		c.t.Fatalf("%s: %v", out, err)
	}

	if told := strings.Contains(notes.String(), "not authenticated"); told != (len(answer.Directories) > 0) {
		c.t.Errorf("%d are found, and the notes are: %s", len(answer.Directories), &notes)
	}

	return answer.Directories
}

// A node with DNS-SD enabled is found on its network, with its trust domain and
// well-known path. A node without it isn't found, and a stopped one is no longer found.
//
// Requirement: AD-007
func TestANodeIsFoundByDNSSD(t *testing.T) {
	t.Parallel()
	c := newCable(t)

	path, err := program()
	must(t, err)

	heard := c.browse()
	stop, stderr := c.serve(path, dnssd.Config{Enabled: true, Interfaces: []string{device}})

	heard(stderr)

	got := c.find(path, "--interface", device, "--wait", "3s")
	if len(got) != 1 {
		t.Fatalf("found %v; the node says %s", got, stderr)
	}

	for member, want := range map[string]any{
		"domain": "alpha.test", "url": "https://ad.alpha.test", "path": "/.well-known/ad",
		"host": c.address(0) + ":8400", "authenticated": false,
	} {
		if got[0][member] != want {
			t.Errorf("%s is %v, want %v", member, got[0][member], want)
		}
	}

	stop()

	if strings.Contains(stderr.String(), `"level":"ERROR"`) || strings.Contains(stderr.String(), "[ERR]") {
		t.Errorf("the node complains: %s", stderr)
	}

	if got := c.find(path, "--wait", "1s"); len(got) != 0 {
		t.Errorf("found %v although nothing runs", got)
	}

	c.serve(path, dnssd.Config{})

	if got := c.find(path, "--wait", "2s"); len(got) != 0 {
		t.Errorf("found %v although DNS-SD is off by default", got)
	}

	var exit *exec.ExitError
	if err := c.command(1, path, "find", "--interface", "nowhere0").Run(); !errors.As(err, &exit) ||
		exit.ExitCode() != 1 {
		t.Errorf("an interface that isn't there: %v", err)
	}
}
