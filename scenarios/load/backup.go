package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	apiclient "github.com/roster-mesh/roster/api/client"
)

// snapshot measures how long a backup of the filled domain takes while clients read and
// write, and how long these wait meanwhile.
func snapshot(ctx context.Context, bench *bench) error {
	filled, err := bench.filled(ctx)
	if err != nil {
		return err
	}

	if err := filled.settled(ctx, filled.size); err != nil {
		return err
	}

	ops, err := filled.clientAs("/ops/operator")
	if err != nil {
		return err
	}
	defer ops.CloseIdleConnections()

	before, err := filled.quiet(ctx, 3*time.Second)
	if err != nil {
		return err
	}

	spent, err := filled.nodes[0].cpu()
	if err != nil {
		return err
	}

	probe := filled.watch(ctx)
	began := time.Now()
	size, saved := saveBackup(ctx, apiclient.NewDirect(filled.Nodes[0].API, ops), filepath.Join(bench.dir, "backup"))
	took := time.Since(began)

	during, err := probe.end()
	cpu, failed := filled.nodes[0].cpu()

	if err := errors.Join(saved, err, failed); err != nil {
		return err
	}

	bench.report.add(row{Section: "snapshot", What: "snapshot of " + count(filled.size) + " while running",
		Value: took.Seconds(), Unit: "s", Bar: atMost(30),
		Note: fmt.Sprintf("%s MB; %.1f s of processor time, the probes' included", figure(float64(size)/1e6),
			(cpu - spent).Seconds())})
	bench.storm("a snapshot of "+count(filled.size)+" is saved", before, during)

	return nil
}

// saveBackup saves a backup to a file, as `roster snapshot save` does before it encrypts, and
// removes it again.
func saveBackup(ctx context.Context, client *apiclient.Client, path string) (size int64, err error) {
	file, err := os.Create(path)
	if err != nil {
		return 0, err
	}
	defer os.Remove(path)
	defer file.Close()

	if err := client.Operator().SaveSnapshot(ctx, file); err != nil {
		return 0, err
	}

	info, err := file.Stat()
	if err != nil {
		return 0, err
	}

	return info.Size(), nil
}
