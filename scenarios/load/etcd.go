package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// errNoEtcd says that there is no yardstick on this machine.
var errNoEtcd = errors.New("etcd is not installed (Debian: apt-get install etcd-server)")

// An etcd is three members on loopback. Its client speaks gRPC by hand, over
// net/http's HTTP/2, one connection for each member: measured beside the client
// of etcd's own module it is as fast, and it spares this module forty others.
type etcd struct {
	members   []*process
	endpoints []string
	client    *http.Client
}

// etcdName is the yardstick's name in the table. Without TLS it is the harder one.
const etcdName = "etcd, 3 members, no TLS"

// startEtcd starts three members that hold their data in dir.
func startEtcd(ctx context.Context, dir string) (e *etcd, err error) {
	program, err := exec.LookPath("etcd")
	if err != nil {
		return nil, errNoEtcd
	}

	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}

	const count = 3

	addresses, err := freeAddresses(2 * count)
	if err != nil {
		return nil, err
	}

	e = &etcd{}
	defer func() {
		if err != nil {
			e.close()
		}
	}()
	transport := &http.Transport{Protocols: new(http.Protocols), DisableCompression: true}
	transport.Protocols.SetUnencryptedHTTP2(true)

	e.client = &http.Client{Transport: transport}

	var cluster []string
	for i := range count {
		cluster = append(cluster, fmt.Sprintf("m%d=http://%s", i, addresses[count+i]))
	}

	for i := range count {
		name := fmt.Sprintf("m%d", i)
		client := "http://" + addresses[i]
		peer := "http://" + addresses[count+i]

		process, err := begin("etcd "+name, filepath.Join(dir, name+".log"), program,
			"--name", name, "--data-dir", filepath.Join(dir, name), "--log-level", "error",
			"--listen-client-urls", client, "--advertise-client-urls", client,
			"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
			"--initial-cluster", strings.Join(cluster, ","), "--quota-backend-bytes", "8589934592")
		if err != nil {
			return nil, err
		}

		e.members = append(e.members, process)
		e.endpoints = append(e.endpoints, client)
	}

	bound, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()

	for i := range e.members {
		if err := until(bound, "etcd takes a put", e.members[i], func() error {
			return e.put(bound, i, "warm", nil)
		}); err != nil {
			return nil, err
		}
	}

	return e, nil
}

func (e *etcd) close() {
	if e == nil {
		return
	}

	for _, p := range e.members {
		p.end()
	}
}

// leader returns the member that reports itself as leader.
func (e *etcd) leader(ctx context.Context) (int, error) {
	for i, endpoint := range e.endpoints {
		metrics, err := ask(ctx, endpoint+"/metrics") // over HTTP/1.1: the port takes HTTP/2 for gRPC
		if err != nil {
			return 0, err
		}

		if bytes.Contains(metrics, []byte("\netcd_server_is_leader 1\n")) {
			return i, nil
		}
	}

	return 0, errors.New("no member of etcd leads")
}

// put puts a value, at a member.
func (e *etcd) put(ctx context.Context, member int, key string, value []byte) error {
	body := appendField(make([]byte, 5, 64+len(key)+len(value)), 1, []byte(key))
	_, err := e.call(ctx, member, "KV/Put", appendField(body, 2, value))

	return err
}

// errAbsent says that there is no such key.
var errAbsent = errors.New("the key is not there")

// get reads a key, linearizably, at a member.
func (e *etcd) get(ctx context.Context, member int, key string) error {
	answer, err := e.call(ctx, member, "KV/Range", appendField(make([]byte, 5, 64+len(key)), 1, []byte(key)))
	if err == nil && !bytes.Contains(answer, []byte(key)) {
		return errAbsent
	}

	return err
}

// appendField appends a field of bytes as Protocol Buffers write it.
func appendField(data []byte, number byte, value []byte) []byte {
	data = append(data, number<<3|2)
	data = binary.AppendUvarint(data, uint64(len(value)))

	return append(data, value...)
}

// call makes one gRPC call; body has room for the five bytes before a message.
func (e *etcd) call(ctx context.Context, member int, method string, body []byte) ([]byte, error) {
	binary.BigEndian.PutUint32(body[1:5], uint32(len(body)-5))

	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.endpoints[member]+"/etcdserverpb."+method,
		bytes.NewReader(body))
	if err != nil {
		return nil, err
	}

	req.Header = http.Header{"Content-Type": {"application/grpc"}, "Te": {"trailers"}}

	resp, err := e.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()

	answer, err := io.ReadAll(resp.Body)
	if err == nil && (resp.StatusCode != http.StatusOK || resp.Trailer.Get("Grpc-Status") != "0") {
		err = fmt.Errorf("etcd answered %s %s %s", resp.Status, resp.Trailer.Get("Grpc-Status"),
			resp.Trailer.Get("Grpc-Message")+resp.Header.Get("Grpc-Message"))
	}

	return answer, err
}

// freeAddresses returns addresses on loopback that were free a moment ago.
func freeAddresses(n int) (addresses []string, err error) {
	var held []net.Listener
	for range n {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}

		held, addresses = append(held, listener), append(addresses, listener.Addr().String())
	}

	for _, l := range held {
		err = errors.Join(err, l.Close())
	}

	return addresses, err
}
