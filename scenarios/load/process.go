package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/roster-mesh/roster/scenarios/launch"
)

// A process is one that this program started, with its log.
type process struct {
	*launch.Process
	name string
	log  *os.File
}

// begin starts a program whose output goes to the end of a file.
func begin(name, logFile, program string, args ...string) (*process, error) {
	log, err := os.OpenFile(logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}

	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr = log, log

	started, err := launch.Start(cmd)
	if err != nil {
		return nil, errors.Join(err, log.Close())
	}

	return &process{started, name, log}, nil
}

// kill ends it without warning and waits.
func (p *process) kill() {
	p.Kill()
	_ = p.log.Close()
}

// end asks it to end, and kills it when it doesn't.
func (p *process) end() {
	if p == nil {
		return
	}

	_ = p.Stop() // how it ended is for its log to say
	_ = p.log.Close()
}

// running returns an error once it has ended.
func (p *process) running() error {
	select {
	case <-p.Done():
		tail, _ := os.ReadFile(p.log.Name())
		return fmt.Errorf("%s has ended: %s", p.name, bytes.TrimSpace(tail[max(0, len(tail)-2000):]))
	default:
		return nil
	}
}

// clockTick is the unit of /proc's times on every Linux that Go runs on.
const clockTick = 10 * time.Millisecond

// cpu returns the processor time that it has used.
func (p *process) cpu() (time.Duration, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.PID()))
	if err != nil {
		return 0, err
	}

	fields := bytes.Fields(data[bytes.LastIndexByte(data, ')')+1:]) // the name before may hold anything
	if len(fields) < 13 {
		return 0, fmt.Errorf("/proc/%d/stat is not as it should be", p.PID())
	}

	user, err1 := strconv.ParseInt(string(fields[11]), 10, 64)
	system, err2 := strconv.ParseInt(string(fields[12]), 10, 64)

	return time.Duration(user+system) * clockTick, errors.Join(err1, err2)
}

// cpuOf returns the processor time that all of them have used.
func cpuOf(ps []*process) (sum time.Duration, err error) {
	for _, p := range ps {
		one, failed := p.cpu()
		sum, err = sum+one, errors.Join(err, failed)
	}

	return sum, err
}

// idle waits until the process uses little processor time: after a start a node builds its index of
// discovery and signs the records that its peers may ask for.
func (p *process) idle(ctx context.Context) error {
	const window = 3 * time.Second

	for {
		before, err := p.cpu()
		if err != nil {
			return err
		}

		select {
		case <-time.After(window):
		case <-ctx.Done():
			return ctx.Err()
		}

		after, err := p.cpu()
		if err != nil || after-before < window/10 {
			return err
		}
	}
}

// Kinds of a process's memory, as the kernel names them. Mapped files, which the kernel can reclaim,
// are no part of the last.
const (
	resident        = "VmRSS:"
	highestResident = "VmHWM:"
	unmapped        = "RssAnon:"
)

// memory returns its memory of a kind in bytes.
func (p *process) memory(kind string) (int64, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID()))
	if err != nil {
		return 0, err
	}

	for line := range bytes.Lines(data) {
		if f := bytes.Fields(line); len(f) > 1 && string(f[0]) == kind {
			kib, err := strconv.ParseInt(string(f[1]), 10, 64)
			return kib << 10, err
		}
	}

	return 0, fmt.Errorf("the kernel doesn't report %s", kind)
}

// until repeats try until it succeeds, the process ends, or ctx does.
func until(ctx context.Context, what string, process *process, try func() error) error {
	for {
		err := try()
		if err == nil {
			return nil
		}

		if process != nil {
			if gone := process.running(); gone != nil {
				return gone
			}
		}

		select {
		case <-ctx.Done():
			return fmt.Errorf("not in time: %s: %w", what, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
