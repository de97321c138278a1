// Package access is who may reach a simulated API server and how they find
// it: a certificate authority and a serving certificate of its own, a bearer
// token, the kubeconfig that holds both, and the rule that without a token
// nobody else's machine gets in.
//
// Nothing of it protects anything but a simulation: keys live in memory and
// are made anew with every server.
package access

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Identity is a server's proof of who it is.
type Identity struct {
	CA []byte

	Certificate tls.Certificate
}

// lifetime is how long certificates are valid: longer than any simulation, no
// longer than clients accept.
const lifetime = 365 * 24 * time.Hour

// NewIdentity makes a certificate authority and, signed by it, a certificate
// for localhost, the loopback addresses and each of hosts, names or addresses.
// The authority's key is forgotten at once: it signs nothing else, ever. It is
// valid from an hour before now, for clocks that differ, for a year.
func NewIdentity(now time.Time, hosts ...string) (*Identity, error) {
	authority := &x509.Certificate{
		Subject:               pkix.Name{CommonName: "watchlab simulated API server CA"},
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	server := &x509.Certificate{
		Subject:     pkix.Name{CommonName: "watchlab simulated API server"},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:    []string{"localhost"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			server.IPAddresses = append(server.IPAddresses, ip)
		} else if host != "" {
			server.DNSNames = append(server.DNSNames, host)
		}
	}
	for _, c := range []*x509.Certificate{authority, server} {
		serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
		if err != nil {
			return nil, fmt.Errorf("access: %w", err)
		}
		c.SerialNumber = serial
		c.NotBefore, c.NotAfter = now.Add(-time.Hour), now.Add(lifetime)
	}
	authorityKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("access: %w", err)
	}
	authorityDER, err := x509.CreateCertificate(rand.Reader, authority, authority, authorityKey.Public(), authorityKey)
	if err != nil {
		return nil, fmt.Errorf("access: certificate authority: %w", err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("access: %w", err)
	}
	der, err := x509.CreateCertificate(rand.Reader, server, authority, key.Public(), authorityKey)
	if err != nil {
		return nil, fmt.Errorf("access: serving certificate: %w", err)
	}
	return &Identity{
		CA:          pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: authorityDER}),
		Certificate: tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key},
	}, nil
}

// ServerConfig returns the TLS configuration of the server: TLS 1.2 or later,
// HTTP/2 first.
func (id *Identity) ServerConfig() *tls.Config {
	return &tls.Config{
		MinVersion:   tls.VersionTLS12,
		Certificates: []tls.Certificate{id.Certificate},
		NextProtos:   []string{"h2", "http/1.1"},
	}
}

// NewToken returns a bearer token of 256 random bits.
func NewToken() string {
	var b [32]byte
	// rand.Read never fails and always fills: see its documentation.
	_, _ = rand.Read(b[:])
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// RequireToken passes on requests that bear the token and answers the others
// with 401 as a real API server does. Comparing takes the same time whatever
// the difference, and the difference in length. An empty token lets everybody
// in.
func RequireToken(token string, next http.Handler) http.Handler {
	if token == "" {
		return next
	}
	want := sha256.Sum256([]byte(token))
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		scheme, given, ok := strings.Cut(strings.TrimSpace(req.Header.Get("Authorization")), " ")
		got := sha256.Sum256([]byte(strings.TrimSpace(given)))
		if !ok || !strings.EqualFold(scheme, "Bearer") || subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
			unauthorized(w)
			return
		}
		next.ServeHTTP(w, req)
	})
}

func unauthorized(w http.ResponseWriter) {
	status := apierrors.NewUnauthorized("Unauthorized").Status()
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	body, err := json.Marshal(status)
	if err != nil {
		http.Error(w, "Unauthorized", http.StatusUnauthorized)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-cache, private")
	w.WriteHeader(http.StatusUnauthorized)
	// The client is gone if it fails.
	_, _ = w.Write(append(body, '\n'))
}

// ErrOpenToAll is the error of an address that other machines reach, without a
// token to keep them out.
var ErrOpenToAll = errors.New("other machines would reach it without a token")

// CheckBind says whether a server may listen on an address, host:port: on a
// loopback address or localhost always, elsewhere (all interfaces, which is
// what an empty host means, included) with a token alone. A name other than
// localhost counts as elsewhere, for what it resolves to may change.
func CheckBind(address, token string) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("listen address %q: %w", address, err)
	}
	if token != "" || host == "localhost" {
		return nil
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsLoopback() {
		return nil
	}
	return fmt.Errorf("listen address %q: %w: give one, or listen on 127.0.0.1", address, ErrOpenToAll)
}
