package deploy

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// A cluster starts the pods of the chart's StatefulSet as processes from the image's root, each
// at a loopback address of its own, with the names that Kubernetes' DNS would have.
type cluster struct {
	t       *testing.T
	image   *image
	network string // the first three numbers of the pods' addresses
	configs map[string]string
	work    string
	hosts   string
	volumes map[int]string
	pods    map[int]*process
}

const nodesName = "roster-nodes.default.svc.cluster.local"

func newCluster(t *testing.T, built *image) *cluster {
	t.Helper()

	c := &cluster{
		t: t, image: built, configs: map[string]string{}, work: t.TempDir(),
		network: strings.TrimSuffix(ownNet(1), "."),
		volumes: map[int]string{}, pods: map[int]*process{},
	}
	c.hosts = filepath.Join(c.work, "hosts")

	for _, manifest := range documents(t, rendered(t, "../helm/values/files.yaml", "--set", "trustDomain=alpha.test")) {
		if manifest["kind"] == "ConfigMap" {
			for name, text := range manifest["data"].(map[string]any) {
				c.configs[name] = text.(string)
			}
		}
	}

	for _, dir := range []string{c.work, filepath.Dir(c.work)} {
		must(t, os.Chmod(dir, 0o755))
	}

	for target, isDir := range map[string]bool{"/proc": true, "/identity": true, "/data": true,
		"/etc/roster/node.yaml": false, "/etc/hosts": false} {
		built.mountPoint(t, target, isDir)
	}

	c.roster("ca", "init", "alpha.test")
	c.roster("ca", "issue", "/ops/operator", "--out", "operator")
	c.publish(3)

	return c
}

// roster runs a command in the cluster's working directory.
func (c *cluster) roster(args ...string) string {
	c.t.Helper()

	command := exec.Command(binary(c.t), args...)
	command.Dir = c.work

	return run(c.t, command)
}

// operate runs a command of the operator at a pod.
func (c *cluster) operate(pod int, args ...string) (string, error) {
	command := exec.Command(binary(c.t), append(args, "--address", "https://"+c.address(pod)+":8400", "--bundle",
		"ca/ca.pem", "--cert", "operator.pem", "--key", "operator.key")...)
	command.Dir = c.work
	out, err := command.CombinedOutput()

	return string(out), err
}

func (c *cluster) address(pod int) string { return fmt.Sprintf("%s.%d", c.network, 10+pod) }

// publish writes what Kubernetes' DNS says when so many pods run.
func (c *cluster) publish(pods int) {
	c.t.Helper()

	hosts := "127.0.0.1 localhost\n"
	for pod := range pods {
		hosts += fmt.Sprintf("%s roster-%d.%s\n%s %s\n", c.address(pod), pod, nodesName, c.address(pod), nodesName)
	}

	// The same file: it is mounted.
	if err := os.WriteFile(c.hosts, []byte(hosts), 0o644); err != nil {
		c.t.Fatal(err)
	}
}

// start starts a pod; without a volume it gets an empty one.
func (c *cluster) start(pod int) {
	c.t.Helper()

	name := fmt.Sprintf("roster-%d", pod)
	dir := filepath.Join(c.work, name)

	if _, err := os.Stat(dir); err != nil {
		c.roster("ca", "issue", "/roster/node/"+name, "--out", name+"/node")
		c.roster("ca", "bundle", "--out", name+"/bundle.pem")

		// A pod has all ports to itself; here all of its listeners get its address.
		config := strings.NewReplacer("0.0.0.0:", c.address(pod)+":", "127.0.0.1:", c.address(pod)+":").
			Replace(c.configs[name+".yaml"])
		if err := os.WriteFile(filepath.Join(dir, "node.yaml"), []byte(config), 0o644); err != nil {
			c.t.Fatal(err)
		}

		run(c.t, exec.Command("chown", "-R", "65532:65532", dir))
	}

	if c.volumes[pod] == "" {
		c.volumes[pod] = c.image.volume(c.t)
	}

	c.pods[pod] = start(c.t, name, c.image.container([]mount{
		{c.volumes[pod], "/data", false},
		{dir, "/identity", true},
		{filepath.Join(dir, "node.yaml"), "/etc/roster/node.yaml", true},
		{c.hosts, "/etc/hosts", true},
	}, nil))
}

// ready asks as the kubelet does.
func (c *cluster) ready(pod int) error {
	client := http.Client{Timeout: 5 * time.Second}

	answer, err := client.Get("http://" + c.address(pod) + ":8404/readyz")
	if err != nil {
		return err
	}
	defer answer.Body.Close()

	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", answer.Status, text)
	}

	return err
}

func (c *cluster) eventuallyReady(pods ...int) {
	c.t.Helper()

	for _, pod := range pods {
		until(c.t, fmt.Sprintf("roster-%d is ready", pod), func() error { return c.ready(pod) })
	}
}

// A podLoad registers agents at the domain, one after the other, as a client that knows the first
// three pods.
type podLoad struct {
	c    *cluster
	stop chan struct{}
	done sync.WaitGroup

	mu           sync.Mutex // guards the fields below
	acknowledged []string
	failures     []string
}

func (c *cluster) load() *podLoad {
	c.t.Helper()
	c.roster("ca", "issue", "/agent/load", "--out", "load")

	document := []byte(`{"base":"https://load.example"}`)
	if err := os.WriteFile(filepath.Join(c.work, "agent.json"), document, 0o644); err != nil {
		c.t.Fatal(err)
	}

	l := &podLoad{c: c, stop: make(chan struct{})}
	l.done.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-l.stop:
				return
			default:
				l.register(fmt.Sprintf("kept-%d", i))
			}
		}
	})
	c.t.Cleanup(func() { l.end() })

	return l
}

func (l *podLoad) register(name string) {
	var addresses []string
	for pod := range 3 {
		addresses = append(addresses, "https://"+l.c.address(pod)+":8400")
	}

	command := exec.Command(binary(l.c.t), "register", name, "agent.json", "--lt", "3600", "--address",
		strings.Join(addresses, ","), "--bundle", "ca/ca.pem", "--cert", "load.pem", "--key", "load.key")
	command.Dir = l.c.work
	out, err := command.CombinedOutput()

	l.mu.Lock()
	defer l.mu.Unlock()

	if err == nil {
		l.acknowledged = append(l.acknowledged, name)
	} else {
		l.failures = append(l.failures, fmt.Sprintf("%s: %v: %s", name, err, out))
	}
}

// more waits until so many more registrations were acknowledged.
func (l *podLoad) more(many int) {
	l.c.t.Helper()

	count := func() int { l.mu.Lock(); defer l.mu.Unlock(); return len(l.acknowledged) }
	bound := count() + many
	until(l.c.t, "agents register", func() error {
		if n := count(); n < bound {
			return fmt.Errorf("%d were acknowledged, want %d", n, bound)
		}

		return nil
	})
}

// end ends the load. It is safe to call twice.
func (l *podLoad) end() {
	l.mu.Lock()

	select {
	case <-l.stop:
	default:
		close(l.stop)
	}

	l.mu.Unlock()
	l.done.Wait()
}

// visible waits until a pod shows every registration that was acknowledged.
func (l *podLoad) visible(pod int) {
	l.c.t.Helper()
	until(l.c.t, fmt.Sprintf("roster-%d shows everything acknowledged", pod), func() error {
		out, err := l.c.operate(pod, "lookup", "--agent", "kept-*", "--all", "-o", "jsonl")
		for _, name := range l.acknowledged {
			if !strings.Contains(out, `"`+name+`"`) {
				return fmt.Errorf("%s is missing of %d: %v", name, len(l.acknowledged), err)
			}
		}

		return err
	})
}

// voters waits until the domain has so many voters as a pod sees it.
func (c *cluster) voters(pod, many int) {
	c.t.Helper()
	until(c.t, fmt.Sprintf("%d voters", many), func() error {
		out, err := c.operate(pod, "raft", "peers")
		if err == nil && (strings.Count(out, nodesName) != many || strings.Count(out, "\tvoter") < many-1) {
			err = fmt.Errorf("%s", out)
		}

		return err
	})
}

// Pods that find each other by the headless service begin a domain. With a standing admission
// it grows to five, and a pod that lost its disk comes back, without an operator. It shrinks to
// three as pods are removed and stopped. Without the admission a pod that was removed stays outside,
// says so, and joins once an operator admits it. Agents register all the time: no registration
// fails, and none is lost.
//
// Requirement: OPS-027
func TestPodsBeginADomainScaleAndReturnWithoutADisk(t *testing.T) {
	helm(t)

	built := unpacked(t)

	c := newCluster(t, built)
	for pod := range 3 {
		c.start(pod)
	}

	c.eventuallyReady(0, 1, 2)

	load := c.load()
	load.more(5)

	const pattern = "spiffe://alpha.test/roster/node/roster-*"
	c.mustOperate(0, "raft", "admit", "--standing", "--max", "5", pattern)

	c.publish(5)
	c.start(3)
	c.start(4)
	c.eventuallyReady(3, 4)
	c.voters(0, 5)
	load.more(5)

	// The pod's volume is lost with its machine.
	c.pods[1].stop(t)
	delete(c.volumes, 1)
	c.start(1)
	c.eventuallyReady(1)
	c.voters(1, 5)
	load.more(5)

	if log := c.logs(); !strings.Contains(log, "a member has lost its disk; it joins anew by a standing admission") {
		t.Error("no pod's log says that roster-1 joined anew")
	}

	// Back to three, as deploy/README.md says. A pod that is removed and still runs would join again
	// while the admission has room.
	c.mustOperate(0, "raft", "admit", "--standing", "--max", "3", pattern)

	for _, pod := range []int{4, 3} {
		c.mustOperate(0, "raft", "remove", fmt.Sprintf("roster-%d", pod))
		c.pods[pod].stop(t)
		load.more(5)
	}

	c.publish(3)
	c.voters(0, 3)

	c.mustOperate(0, "raft", "admit", "--standing", "--withdraw", pattern)
	c.publish(4)
	delete(c.volumes, 3)
	c.start(3)
	until(t, "the pod says that it isn't admitted", func() error {
		if err := c.ready(3); err == nil || !strings.Contains(err.Error(), "503") {
			return fmt.Errorf("its readiness is %v", err)
		}

		if log := c.pods[3].log.String(); !strings.Contains(log, "is not admitted: an operator admits it with") {
			return fmt.Errorf("its log is %s", log)
		}

		return nil
	})
	load.more(5)
	c.voters(0, 3)

	c.mustOperate(0, "raft", "admit", "roster-3")
	c.eventuallyReady(3)
	c.voters(0, 4)
	load.end()

	t.Logf("%d registrations were acknowledged", len(load.acknowledged))

	for _, failure := range load.failures {
		t.Error(failure)
	}

	for pod := range 4 {
		load.visible(pod)
	}
}

// logs returns the logs of the pods that run.
func (c *cluster) logs() (all string) {
	for _, pod := range c.pods {
		all += pod.log.String()
	}

	return all
}

// mustOperate is operate that has to succeed.
func (c *cluster) mustOperate(pod int, args ...string) string {
	c.t.Helper()

	out, err := c.operate(pod, args...)
	if err != nil {
		c.t.Fatalf("%q: %v\n%s", args, err, out)
	}

	return out
}
