package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A filled is a domain of one node that holds many registrations. It was filled
// through its API; one node, since the figures about many are about one node's
// memory, and three would need three times as long to be filled.
type filled struct {
	*domain
	size  int
	empty float64 // bytes of live heap before anything was registered; 0 if it was kept
}

// filled returns the domain with many registrations, which the first section
// that needs it fills.
func (b *bench) filled(ctx context.Context) (*filled, error) {
	if b.many != nil {
		return b.many, b.many.nodes[0].running()
	}

	dir := filepath.Join(b.dir, "many")
	if b.keep != "" {
		dir = filepath.Join(b.keep, fmt.Sprintf("many-%d", b.size))
	}

	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}

	domain, err := b.layOut(ctx, dir, 1)
	if err != nil {
		return nil, err
	}

	f := &filled{domain: domain, size: b.size}
	if err := f.prepare(ctx, b); err != nil {
		domain.close()
		return nil, err
	}

	b.many = f

	return f, nil
}

// empty ends the domain with many registrations, if there is one.
func (b *bench) empty() {
	if b.many != nil {
		b.many.close()
		b.many = nil
	}
}

// prepare starts f's node with the kept directory, or fills it.
func (f *filled) prepare(ctx context.Context, bench *bench) error {
	domain := f.domain
	data, kept := domain.Nodes[0].Data, domain.Nodes[0].Data+".kept"
	_, err := os.Stat(kept)

	had := err == nil
	if had {
		if err := errors.Join(os.RemoveAll(data), os.CopyFS(data, os.DirFS(kept)), private(data)); err != nil {
			return err
		}

		syscall.Sync() // else the disk is busy with it while the node writes
	}

	if err := domain.start(ctx); err != nil {
		return err
	}

	if had {
		return nil
	}

	if f.empty, err = domain.live(ctx, 0); err != nil {
		return err
	}

	began := time.Now()

	if _, err := domain.fill(ctx, "m", 0, bench.size, 604800); err != nil {
		return err
	}

	took := time.Since(began)
	bench.note("registered %s in %s, %.0f/s", count(bench.size), took.Round(time.Second),
		float64(bench.size)/took.Seconds())

	if bench.keep == "" {
		return nil
	}

	domain.nodes[0].end()

	part := kept + ".part" // so that a partial copy is not used
	if err := errors.Join(os.RemoveAll(part), os.CopyFS(part, os.DirFS(data))); err != nil {
		return err
	}

	if err := os.Rename(part, kept); err != nil {
		return err
	}

	return domain.start(ctx)
}

// settled waits until d's first node is idle: after a start it builds the index of
// discovery, which no measurement here uses.
func (d *domain) settled(ctx context.Context, size int) error {
	bound, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()

	return until(bound, "all are in the index of discovery", d.nodes[0], func() error {
		m, err := d.metrics(ctx, 0)
		if found := m["roster_discovery_registrations"]; err == nil && found < float64(size) {
			err = fmt.Errorf("%.0f are", found)
		}

		return err
	})
}

// private restricts copied files to their owner again, as a node requires.
func private(dir string) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}

		mode := fs.FileMode(0o600)
		if d.IsDir() {
			mode = 0o700
		}

		return os.Chmod(path, mode)
	})
}

// fill registers the documents from first to beyond and returns their paths.
func (d *domain) fill(ctx context.Context, series string, first, beyond, lifetime int) ([]string, error) {
	n := beyond - first
	paths := make([]string, n)

	const clients = 64

	sample := measure(ctx, clients, time.Hour, n, func(ctx context.Context, w, i int) (err error) {
		at := i*clients + w
		paths[at], err = d.register(ctx, at%len(d.Nodes), name(series, first+at), lifetime, document(first+at))

		return err
	})
	if sample.done != n {
		return nil, fmt.Errorf("registered %d of %d: %w", sample.done, n, errors.Join(sample.reason, ctx.Err()))
	}

	return paths, nil
}

// count writes a number of registrations as the bars do.
func count(n int) string {
	switch {
	case n >= 1_000_000 && n%1_000_000 == 0:
		return fmt.Sprintf("%d·10^6", n/1_000_000)
	case n >= 1000 && n%1000 == 0:
		return fmt.Sprintf("%d,000", n/1000)
	}

	return strconv.Itoa(n)
}

// live returns the bytes of a node's heap that are in use after a collection.
func (d *domain) live(ctx context.Context, i int) (float64, error) {
	ops, err := d.clientAs("/ops/operator")
	if err != nil {
		return 0, err
	}
	defer ops.CloseIdleConnections()

	if _, err := askBy(ctx, ops, d.Nodes[i].API+"/v1/operator/debug/pprof/heap?gc=1"); err != nil {
		return 0, err
	}

	m, err := d.metrics(ctx, i)

	return m["go_memstats_heap_alloc_bytes"], err
}

var metricLine = regexp.MustCompile(`^([a-z_]+)(?:\{[^}]*\})? ([^ ]+)$`)

// metrics reads a node's metrics; of those with labels, the last.
func (d *domain) metrics(ctx context.Context, i int) (map[string]float64, error) {
	data, err := ask(ctx, d.Nodes[i].Admin+"/metrics")
	if err != nil {
		return nil, err
	}

	values := map[string]float64{}
	for line := range strings.Lines(string(data)) {
		if m := metricLine.FindStringSubmatch(strings.TrimSpace(line)); m != nil {
			if v, err := strconv.ParseFloat(m[2], 64); err == nil {
				values[m[1]] = v
			}
		}
	}

	return values, nil
}
