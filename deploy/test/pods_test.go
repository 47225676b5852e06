package deploy

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
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
		network: fmt.Sprintf("127.%d.%d", 1+os.Getpid()%250, 1+(os.Getpid()/250+1)%250),
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
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
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

// Pods that find each other by the headless service begin a domain. With a standing admission
// it grows to five, and a pod that lost its disk comes back, without an operator.
//
// Requirement: OPS-027
func TestPodsBeginADomainGrowAndReturnWithoutADisk(t *testing.T) {
	helm(t)

	built := unpacked(t)

	c := newCluster(t, built)
	for pod := range 3 {
		c.start(pod)
	}

	c.eventuallyReady(0, 1, 2)

	if out, err := c.operate(0, "raft", "admit", "--standing", "--max", "5",
		"spiffe://alpha.test/roster/node/roster-*"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}

	c.publish(5)
	c.start(3)
	c.start(4)
	c.eventuallyReady(3, 4)

	// The pod's volume is lost with its machine.
	c.pods[1].stop(t)
	delete(c.volumes, 1)
	c.start(1)
	c.eventuallyReady(1)

	until(t, "five voters", func() error {
		out, err := c.operate(1, "raft", "peers")
		if err == nil && strings.Count(out, nodesName) != 5 {
			err = fmt.Errorf("%s", out)
		}

		return err
	})
}
