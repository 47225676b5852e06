package dev

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/roster-mesh/roster/consensus"
	"github.com/roster-mesh/roster/node"
	"github.com/roster-mesh/roster/node/config"
)

// A startedNode is one started node of a development mesh.
type startedNode interface {
	pid() int
	stop() error
}

// inProcess is a node within this process.
type inProcess struct {
	node *node.Node
	log  *os.File
}

func startInProcess(d *Node) (startedNode, error) {
	cfg, err := config.Load(d.Config)
	if err != nil {
		return nil, err
	}

	log, err := openLog(d)
	if err != nil {
		return nil, err
	}

	n, err := node.Start(cfg, node.Env{
		Logger: cfg.Log.Logger(log, nil), Timing: consensus.LocalTiming, Together: true,
	})
	if err != nil {
		return nil, errors.Join(err, log.Close())
	}

	return &inProcess{n, log}, nil
}

func (p *inProcess) pid() int    { return os.Getpid() }
func (p *inProcess) stop() error { return errors.Join(p.node.Close(), p.log.Close()) }

// openLog opens node.log beside the node's configuration.
func openLog(d *Node) (*os.File, error) {
	return os.OpenFile(filepath.Join(filepath.Dir(d.Config), "node.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
}

// child is a node in a process of its own: this program's serve.
type child struct {
	cmd  *exec.Cmd
	log  *os.File
	done chan error
}

func startProcess(node *Node) (startedNode, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}

	log, err := openLog(node)
	if err != nil {
		return nil, err
	}

	cmd := exec.Command(self, "serve", "--config", node.Config)

	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(err, log.Close())
	}

	c := &child{cmd, log, make(chan error, 1)}
	go func() { c.done <- cmd.Wait() }()

	return c, nil
}

func (c *child) pid() int { return c.cmd.Process.Pid }

// stop asks the child to end and kills it when it doesn't. A child that was killed
// before, as an experiment, is no error.
func (c *child) stop() error {
	defer func() { _ = c.log.Close() }()

	_ = c.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-c.done: //nolint:errcheck // a child that was killed before is fine
		return nil
	case <-time.After(node.CloseTimeout + time.Second):
		return errors.Join(fmt.Errorf("node %d did not end in time and was killed", c.pid()), c.cmd.Process.Kill(),
			<-c.done)
	}
}
