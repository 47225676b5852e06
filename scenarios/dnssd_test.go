package scenarios

import (
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
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"go.yaml.in/yaml/v3"

	"github.com/roster-mesh/roster/node/config"
	"github.com/roster-mesh/roster/node/dnssd"
	"github.com/roster-mesh/roster/scenarios/launch"
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
func (c *cable) serve(program string, announced dnssd.Config) (stop func(), running *launch.Process) {
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

	node, err := launch.Start(c.command(0, program, "serve", "--config", file)) // ip netns exec becomes the program
	check(err)

	stop = sync.OnceFunc(func() { check(node.Stop()) })
	c.t.Cleanup(stop)

	launch.Eventually(c.t, "the node is ready", func() error {
		select {
		case <-node.Done():
			c.t.Fatalf("the node ended: %s", node.Output())
		default:
		}

		return c.command(0, "bash", "-c",
			"exec 3<>/dev/tcp/127.0.0.1/8401 && printf 'GET /readyz HTTP/1.0\\r\\nHost: localhost\\r\\n\\r\\n' >&3 && "+
				"grep -q '200 OK' <&3").Run()
	})

	return stop, node
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

	stop, running := c.serve(path, dnssd.Config{Enabled: true, Interfaces: []string{device}})

	got := c.find(path, "--interface", device, "--wait", "10s")
	if len(got) != 1 {
		t.Fatalf("found %v; the node says %s", got, running.Output())
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

	if said := running.Output(); strings.Contains(said, `"level":"ERROR"`) || strings.Contains(said, "[ERR]") {
		t.Errorf("the node complains: %s", said)
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
