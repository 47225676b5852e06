package deploy

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
)

// meshWithin returns the bound of the time from nothing to a peered mesh: that of OPS-010 if STORY_LONG asks for it,
// on a machine that does nothing else, and otherwise patience.
func meshWithin() time.Duration {
	if os.Getenv("STORY_LONG") == "" {
		return patience
	}

	return 60 * time.Second
}

// loadCompose reads the compose file as Docker does, with the containers' network at a /24
// of loopback.
func loadCompose(t *testing.T, network string, profiles ...string) *types.Project {
	t.Helper()

	options, err := cli.NewProjectOptions([]string{"../compose.yaml"},
		cli.WithEnv([]string{"ROSTER_NETWORK=" + network}), cli.WithProfiles(profiles), cli.WithConsistency(true),
		cli.WithInterpolation(true), cli.WithResolvedPaths(true))
	must(t, err)

	project, err := options.LoadProject(t.Context())
	must(t, err)

	return project
}

// Requirement: OPS-010
func TestComposeContainersAreConfined(t *testing.T) {
	project := loadCompose(t, "127.0.9", "*")

	for name, service := range project.Services {
		if !service.ReadOnly || service.User != "65532:65532" || !slices.Contains(service.CapDrop, "ALL") ||
			!slices.Contains(service.SecurityOpt, "no-new-privileges:true") || service.Privileged {
			t.Errorf("%s is not confined: read-only %v, user %s, dropped %v, options %v", name, service.ReadOnly,
				service.User, service.CapDrop, service.SecurityOpt)
		}

		for _, port := range service.Ports {
			if port.HostIP != "127.0.0.1" {
				t.Errorf("%s publishes port %s at %q", name, port.Published, port.HostIP)
			}
		}
	}

	// Later starts make nothing again.
	var names []string
	for name := range loadCompose(t, "127.0.9").Services {
		names = append(names, name)
	}

	slices.Sort(names)

	if want := "alpha-a alpha-b alpha-c beta-a beta-b beta-c weather"; strings.Join(names, " ") != want {
		t.Errorf("without a profile compose starts %v, want %s", names, want)
	}
}

// A composition starts the services of a compose file from the image's root, in the order
// and on the conditions of depends_on.
type composition struct {
	t       *testing.T
	image   *image
	project *types.Project
	volumes map[string]string

	mu       sync.Mutex
	services map[string]*composed
	running  []*process
}

// A composed is a service of which one container is started.
type composed struct {
	started, healthy, completed chan struct{}
}

func compose(t *testing.T, built *image, project *types.Project) *composition {
	t.Helper()

	c := &composition{t: t, image: built, project: project, volumes: map[string]string{},
		services: map[string]*composed{}}
	built.mountPoint(t, "/proc", true)

	for name := range project.Volumes {
		c.volumes[name] = built.volume(t)
	}

	for name, service := range project.Services {
		c.services[name] = &composed{make(chan struct{}), make(chan struct{}), make(chan struct{})}

		for _, volume := range service.Volumes {
			info, err := os.Stat(volume.Source)
			built.mountPoint(t, volume.Target, volume.Type == types.VolumeTypeVolume || err == nil && info.IsDir())
		}
	}

	return c
}

// command returns a service's command in its container; args replace those of the service.
func (c *composition) command(name string, args ...string) *exec.Cmd {
	service := c.project.Services[name]

	var mounts []mount

	for _, volume := range service.Volumes {
		source := volume.Source
		if volume.Type == types.VolumeTypeVolume {
			source = c.volumes[volume.Source]
			if volume.Volume != nil {
				source = filepath.Join(source, volume.Volume.Subpath)
			}
		}

		mounts = append(mounts, mount{source, volume.Target, volume.ReadOnly})
	}

	var env []string

	for key, value := range service.Environment {
		if value != nil {
			env = append(env, key+"="+*value)
		}
	}

	if len(args) == 0 {
		args = service.Command
	}

	return c.image.container(mounts, env, args...)
}

// up starts all services and waits for those that end.
func (c *composition) up(ctx context.Context) error {
	errs := make(chan error, len(c.services))
	for name := range c.services {
		go func() { errs <- c.startService(ctx, name) }()
	}

	var all error
	for range c.services {
		all = errors.Join(all, <-errs)
	}

	c.t.Cleanup(c.down) // before each process's own

	return all
}

// failed returns the error of a process that has ended by itself.
func (c *composition) failed() error {
	for _, p := range c.running {
		select {
		case <-p.done:
			return fmt.Errorf("%s ended: %w", p.name, p.err)
		default:
		}
	}

	return nil
}

// down stops all services at once.
func (c *composition) down() {
	var stopped sync.WaitGroup
	for _, p := range c.running {
		stopped.Go(func() { p.stop(c.t) })
	}

	stopped.Wait()
}

func (c *composition) startService(ctx context.Context, name string) error {
	service := c.project.Services[name]

	for other, dependency := range service.DependsOn {
		before, known := c.services[other]
		if !known && !dependency.Required {
			continue
		}

		done := map[string]chan struct{}{
			types.ServiceConditionStarted:               before.started,
			types.ServiceConditionHealthy:               before.healthy,
			types.ServiceConditionCompletedSuccessfully: before.completed,
		}[dependency.Condition]

		select {
		case <-done:
		case <-ctx.Done():
			return fmt.Errorf("%s waits for %s: %w", name, other, context.Cause(ctx))
		}
	}

	state := c.services[name]
	command := c.command(name)

	if service.Restart == "" { // a service that ends
		close(state.started)

		if out, err := command.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s", name, err, out)
		}

		close(state.completed)

		return nil
	}

	c.mu.Lock()
	p := start(c.t, name, command)
	c.running = append(c.running, p)
	c.mu.Unlock()
	close(state.started)

	if service.HealthCheck == nil {
		return nil
	}

	for {
		check := c.command(name, service.HealthCheck.Test[2:]...) // after CMD and the entry point
		out, err := check.CombinedOutput()

		if err == nil {
			close(state.healthy)
			return nil
		}

		select {
		case <-time.After(500 * time.Millisecond): // Docker checks each interval
		case <-p.done:
			return fmt.Errorf("%s ended: %w", name, p.err)
		case <-ctx.Done():
			return fmt.Errorf("%s isn't healthy: %w\n%s", name, err, out)
		}
	}
}

// Each domain's services make its authority and its identities, begin the domain, and peer
// it. An agent's container registers it, and the other domain finds it.
//
// Requirement: OPS-010, OPS-026
func TestComposeIsAPeeredMesh(t *testing.T) {
	built := unpacked(t)

	c := compose(t, built, loadCompose(t, strings.TrimSuffix(ownNet(0), "."), "setup", "operator", "renew"))
	for _, name := range []string{"alpha-operator", "beta-operator", "alpha-renew", "beta-renew"} {
		delete(c.services, name) // for "docker compose run"
	}

	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), meshWithin())

	defer cancel()

	must(t, c.up(ctx))

	until(t, "beta.test finds the agent of alpha.test", func() error {
		must(t, c.failed())

		out, err := c.command("beta-operator", "lookup", "--agent", "weather").CombinedOutput()
		if err == nil && !strings.Contains(string(out), "alpha.test") {
			err = errors.New("it isn't there")
		}

		if err != nil {
			return fmt.Errorf("%w\n%s", err, out)
		}

		return nil
	})

	took := time.Since(began)
	t.Logf("%.1f s from nothing to a peered mesh", took.Seconds())

	if bound := meshWithin(); took > bound {
		t.Errorf("a peered mesh took %s, over %s", took, bound)
	}

	if out := run(t, c.command("alpha-operator", "raft", "peers")); strings.Count(out, "spiffe://") != 3 {
		t.Errorf("alpha.test has not three members:\n%s", out)
	}

	run(t, c.command("alpha-renew"))

	// The authority's key and the other nodes' files stay out of a node's container.
	for _, path := range []string{"ca", "b", "operator"} {
		source := filepath.Join(c.volumes["alpha"], path)
		if _, err := os.Stat(source); err != nil {
			t.Errorf("the volume has no %s: %v", path, err)
		}
	}
}
