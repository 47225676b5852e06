package doctor

import (
	"context"
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"

	"github.com/roster-mesh/roster/node/config"
	"github.com/roster-mesh/roster/trust"
)

// names checks that the addresses of the configuration can be resolved on this machine.
func (d *diagnosis) names(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, askBound)
	defer cancel()

	resolved := 0

	for _, host := range hostsOf(&d.cfg) {
		if _, err := net.DefaultResolver.LookupHost(ctx, host); err != nil {
			d.say("name "+host, StatusFailed, "add it to DNS, or correct members, join or gossip", "%v", err)
			continue
		}

		resolved++
	}

	if resolved > 0 {
		d.say("names", StatusOK, "", "hosts that can be resolved: %d", resolved)
	}
}

// hostsOf returns the hosts of the addresses at which nodes are reached.
func hostsOf(cfg *config.Config) (hosts []string) {
	addresses := slices.Concat(cfg.Join, cfg.Gossip.Seeds, []string{cfg.Gossip.Advertise})
	urls := []string{cfg.PublicURL}

	for _, member := range cfg.Members {
		addresses = append(addresses, member.Cluster)
		urls = append(urls, member.API)
	}

	for _, address := range addresses {
		host, _, _ := net.SplitHostPort(address)
		hosts = append(hosts, host)
	}

	for _, text := range urls {
		if u, err := url.Parse(text); err == nil {
			hosts = append(hosts, u.Hostname())
		}
	}

	slices.Sort(hosts)

	return slices.DeleteFunc(slices.Compact(hosts), func(host string) bool { return host == "" })
}

// authorityKeys warns of the domain's CA key beside the node's files.
func (d *diagnosis) authorityKeys(context.Context) {
	for _, path := range AuthorityKeys(&d.cfg) {
		d.say("authority key", StatusWarning, "move it to a machine that runs no node, and delete it here",
			"%s is the private key of the domain's CA: its holder can issue any identity", path)
	}
}

// Bounds of a search for keys.
const (
	maxKeyFiles = 256      // of a folder
	maxKeyFile  = 64 << 10 // bytes
)

// AuthorityKeys returns the files, in and beside the folders of a node's identity and data,
// with a private key of a CA in the domain's bundle (OPS-024).
func AuthorityKeys(cfg *config.Config) (paths []string) {
	bundles := trust.NewBundles()
	if cfg.Identity.Bundle == "" || bundles.LoadFile(cfg.TrustDomain, cfg.Identity.Bundle) != nil {
		return nil
	}

	bundle, err := bundles.GetX509BundleForTrustDomain(cfg.TrustDomain)
	if err != nil {
		return nil
	}

	isAuthority := func(key crypto.PublicKey) bool {
		return slices.ContainsFunc(bundle.X509Authorities(), func(authority *x509.Certificate) bool {
			public, ok := authority.PublicKey.(interface{ Equal(crypto.PublicKey) bool })
			return ok && public.Equal(key)
		})
	}

	for _, path := range keyFiles(cfg) {
		if signer := readPrivateKey(path); signer != nil && isAuthority(signer.Public()) {
			paths = append(paths, path)
		}
	}

	return paths
}

// keyFiles returns the files that may hold a CA's key.
func keyFiles(cfg *config.Config) (paths []string) {
	var folders []string

	for _, file := range []string{cfg.Identity.Cert, cfg.Identity.Key, cfg.Identity.Bundle, cfg.Data} {
		folder := filepath.Dir(file)
		folders = append(folders, folder, filepath.Dir(folder), filepath.Join(filepath.Dir(folder), "ca"),
			filepath.Join(folder, "ca"))
	}

	slices.Sort(folders)

	for _, folder := range slices.Compact(folders) {
		entries, _ := os.ReadDir(folder) // one that isn't there, or can't be read, has no key for this account
		for _, entry := range entries[:min(len(entries), maxKeyFiles)] {
			// Opening a FIFO would wait for its writer.
			if ext := filepath.Ext(entry.Name()); entry.Type().IsRegular() && (ext == ".key" || ext == ".pem") {
				paths = append(paths, filepath.Join(folder, entry.Name()))
			}
		}
	}

	return paths
}

// readPrivateKey returns the first private key of a PEM file; nil if there is none.
func readPrivateKey(path string) crypto.Signer {
	file, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer file.Close()

	text, _ := io.ReadAll(io.LimitReader(file, maxKeyFile))

	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if key, err := x509.ParsePKCS8PrivateKey(block.Bytes); err == nil {
			signer, _ := key.(crypto.Signer)
			return signer
		}

		if key, err := x509.ParseECPrivateKey(block.Bytes); err == nil {
			return key
		}
	}

	return nil
}
