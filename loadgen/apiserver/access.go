package apiserver

import (
	"bytes"
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"
)

// Identity is the TLS identity of a server, with new keys in memory for each server.
type Identity struct {
	CA          []byte          // the authority that clients trust, in PEM
	Certificate tls.Certificate // the server's, with its key
}

const lifetime = 365 * 24 * time.Hour // of a serving certificate

// NewIdentity creates a certificate authority and a serving certificate for localhost, the loopback
// addresses and the given names or addresses. The certificate is valid from an hour before now,
// because clocks differ, for a year. The authority's key is discarded.
//
// client-go's cert.GenerateSelfSignedCertKey is not used: it makes RSA keys, whose
// handshakes cost the server some 30 times the CPU time of these.
func NewIdentity(now time.Time, hosts ...string) (*Identity, error) {
	authorityKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	begin := now.Add(-time.Hour)
	authority, err := cert.NewSelfSignedCACert(cert.Config{CommonName: "watchlab simulated API server CA", NotBefore: begin}, authorityKey)
	if err != nil {
		return nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	// x509 draws the serial number.
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: "watchlab simulated API server"},
		NotBefore:   begin,
		NotAfter:    now.Add(lifetime),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:    []string{"localhost"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else if host != "" {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, authority, key.Public(), authorityKey)
	if err != nil {
		return nil, err
	}
	ca, err := cert.EncodeCertificates(authority)
	return &Identity{CA: ca, Certificate: tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}}, err
}

// ServerConfig returns the configuration of the server: TLS 1.2 or later, HTTP/2 first.
func (id *Identity) ServerConfig() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{id.Certificate}, NextProtos: []string{"h2", "http/1.1"}}
}

// ListenLoopback listens on a free port of loopback, for a server with a new identity.
func ListenLoopback() (net.Listener, *Identity, error) {
	id, err := NewIdentity(time.Now())
	if err != nil {
		return nil, nil, err
	}
	l, err := Access{}.Listen("127.0.0.1:0")
	return l, id, err
}

// NewToken returns a random bearer token.
func NewToken() string { return rand.Text() }

// RequireToken is [RequireTokens] of one token without a client's name. An empty token admits everybody.
func RequireToken(token string, next http.Handler) http.Handler {
	if token == "" {
		return next
	}
	return RequireTokens(map[string]string{token: ""}, next)
}

// RequireTokens passes on requests with a bearer token, that of a service account included, and names its client in the
// context ([WithClient]). It answers others with 401. The time does not depend on the token.
func RequireTokens(clients map[string]string, next http.Handler) http.Handler {
	bySum := map[[sha256.Size]byte]string{} // A search by the sum tells nothing about a token.
	for token, client := range clients {
		bySum[sha256.Sum256([]byte(token))] = client
	}
	var authenticate authenticator = func(token string) (client string, user authenticationv1.UserInfo, audiences []string) {
		if client, known := bySum[sha256.Sum256([]byte(token))]; known {
			return client, administrator(client), []string{issuer}
		}
		return verify(token)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		scheme, token, _ := strings.Cut(strings.TrimSpace(req.Header.Get("Authorization")), " ")
		client, user, audiences := authenticate(strings.TrimSpace(token))
		if !slices.Contains(audiences, issuer) || !strings.EqualFold(scheme, "Bearer") {
			w.Header().Set("Cache-Control", "no-cache, private")
			writeError(w, req, apierrors.NewUnauthorized("Unauthorized"))
			return
		}
		ctx := context.WithValue(context.WithValue(req.Context(), userKey{}, &user), authenticatorKey{}, authenticate)
		if client != "" {
			ctx = WithClient(ctx, client)
		}
		next.ServeHTTP(w, req.WithContext(ctx))
	})
}

// authenticator finds the client and the user of a token, and for whom it is meant: for nobody if it is wrong.
type authenticator func(token string) (client string, user authenticationv1.UserInfo, audiences []string)

type userKey struct{}
type authenticatorKey struct{}

// administrator is the user of a token of the server itself, and of a request without one.
func administrator(client string) authenticationv1.UserInfo {
	return authenticationv1.UserInfo{Username: cmp.Or(client, "admin"), Groups: []string{"system:masters", "system:authenticated"}}
}

// userOf returns the user of a request, or the one that he impersonates.
func userOf(r *http.Request) *authenticationv1.UserInfo {
	if name := r.Header.Get("Impersonate-User"); name != "" {
		return &authenticationv1.UserInfo{Username: name, UID: r.Header.Get("Impersonate-Uid"), Groups: append(r.Header.Values("Impersonate-Group"), "system:authenticated")}
	}
	if user, ok := r.Context().Value(userKey{}).(*authenticationv1.UserInfo); ok {
		return user
	}
	return new(administrator(ClientOf(r.Context())))
}

// issuer issues the tokens of service accounts; it is the audience of the server, too.
const issuer = "https://kubernetes.default.svc"

// claims are those of the token of a service account, with the names of a real server's.
type claims struct {
	Audiences  []string       `json:"aud"`
	Expires    int64          `json:"exp"`
	Issued     int64          `json:"iat"`
	Issuer     string         `json:"iss"`
	Kubernetes map[string]any `json:"kubernetes.io"`
	Subject    string         `json:"sub"`
	UID        string         `json:"uid"`
}

// signature signs with a key that lives as long as the process.
var signature = sync.OnceValue(func() func(text string) string {
	key := []byte(rand.Text())
	return func(text string) string {
		sum := hmac.New(sha256.New, key)
		_, _ = sum.Write([]byte(text)) // never fails
		return text + "." + base64.RawURLEncoding.EncodeToString(sum.Sum(nil))
	}
})

// sign returns the claims as a JSON web token.
func (c *claims) sign() string {
	body, _ := json.Marshal(c) // which has no other values
	return signature()(base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"HS256"}`)) + "." + base64.RawURLEncoding.EncodeToString(body))
}

// verify is the [authenticator] of tokens of service accounts that have not expired.
func verify(token string) (client string, user authenticationv1.UserInfo, audiences []string) {
	text := token[:max(0, strings.LastIndexByte(token, '.'))]
	_, payload, _ := strings.Cut(text, ".")
	body, err := base64.RawURLEncoding.DecodeString(payload)
	var c claims
	if err != nil || subtle.ConstantTimeCompare([]byte(signature()(text)), []byte(token)) != 1 || json.Unmarshal(body, &c) != nil || time.Now().Unix() >= c.Expires {
		return "", user, nil
	}
	accounts := "system:serviceaccounts"
	namespace := strings.Split(c.Subject, ":")[2]
	return "", authenticationv1.UserInfo{Username: c.Subject, UID: c.UID, Groups: []string{accounts, accounts + ":" + namespace, "system:authenticated"}}, c.Audiences
}

// ErrOpenToAll means that other machines could reach a server without a token, or read it.
var ErrOpenToAll = errors.New("other machines would reach it")

// Access configures the listeners and their authentication. [Access.Listen] opens all listeners, so that one rule
// holds for them: on loopback, or with a token and TLS.
type Access struct {
	Token    string // bearer token that requests need; empty for none
	TLS      bool   // the server encrypts
	Insecure bool   // the user allows plain HTTP beyond loopback
	Public   bool   // the server shows figures and probes only: neither token nor TLS is needed
}

// Listen listens on host:port. The error for an address that the rule forbids wraps [ErrOpenToAll].
func (a Access) Listen(address string) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	why := "and must not: listen on 127.0.0.1"
	switch {
	case a.Public || Loopback(l) || a.Token != "" && (a.TLS || a.Insecure):
		return l, nil
	case a.Token != "":
		why = "in plain text: use TLS or --insecure-listen, or listen on 127.0.0.1"
	}
	return nil, errors.Join(fmt.Errorf("listen address %q: %w %s", address, ErrOpenToAll, why), l.Close())
}

// Loopback reports whether only this machine reaches a listener.
func Loopback(l net.Listener) bool {
	a, ok := l.Addr().(*net.TCPAddr)
	return ok && a.IP.IsLoopback()
}

// Bounds of requests. A watch has no timeouts; see [Server.watch].
const (
	readTimeout   = time.Minute
	writeTimeout  = 5 * time.Minute
	headerTimeout = 10 * time.Second
	idleTimeout   = 90 * time.Second // as in a real server
	maxHeader     = 1 << 20          // as in a real server
)

// HTTPServer returns a server of a listener that bounds the size and the time of requests, and the number of
// connections if it is not 0. It answers 403 to changes that the page of another web site makes, and on loopback
// to requests for other hosts: the name of another site may resolve to loopback (DNS rebinding).
func HTTPServer(l net.Listener, h http.Handler, connections int32) *http.Server {
	loopback, next := Loopback(l), http.NewCrossOriginProtection().Handler(h)
	s := &http.Server{
		ReadHeaderTimeout: headerTimeout, ReadTimeout: readTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: maxHeader,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			u, err := url.Parse("//" + req.Host)
			if loopback && (err != nil || u.Hostname() != "localhost" && !net.ParseIP(u.Hostname()).IsLoopback()) {
				http.Error(w, "the server is on loopback only", http.StatusForbidden)
				return
			}
			req.Body = http.MaxBytesReader(w, req.Body, maxBody)
			next.ServeHTTP(w, req)
		}),
	}
	if connections > 0 {
		var open atomic.Int32
		s.ConnState = func(c net.Conn, state http.ConnState) {
			switch state {
			case http.StateNew:
				if open.Add(1) > connections {
					_ = c.Close()
				}
			case http.StateClosed:
				open.Add(-1)
			}
		}
	}
	return s
}

// Kubeconfig holds what a client needs to connect.
type Kubeconfig struct {
	Server string // URL of the server
	CA     []byte // trusted authority in PEM; nil for plain HTTP
	Token  string // bearer token; empty for none
}

// kubeconfigMark is the first line of a kubeconfig that watchlab may replace.
const kubeconfigMark = "# Written by watchlab serve: a simulated API server. It is replaced when it is written again.\n"

// ErrForeignFile means that a kubeconfig would replace a file of another program.
var ErrForeignFile = errors.New("the file exists and was not written by watchlab")

// WriteKubeconfig writes the kubeconfig atomically to a file that only its owner can read.
// Without overwrite, the error for a file of another program wraps [ErrForeignFile].
func WriteKubeconfig(path string, k Kubeconfig, overwrite bool) error {
	if err := CheckKubeconfig(path, overwrite); err != nil {
		return err
	}
	const name = "watchlab" // of the cluster, the user and the context
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: k.Server, CertificateAuthorityData: k.CA}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: k.Token}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	data, err := clientcmd.Write(*config)
	if err != nil {
		return fmt.Errorf("kubeconfig: %w", err)
	}
	temp, err := os.CreateTemp(filepath.Dir(path), ".kubeconfig-*") // mode 0600
	if err != nil {
		return fmt.Errorf("kubeconfig: %w", err)
	}
	_, err = temp.Write(append([]byte(kubeconfigMark), data...))
	if err = errors.Join(err, temp.Close()); err == nil {
		err = os.Rename(temp.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("kubeconfig %s: %w", path, errors.Join(err, os.Remove(temp.Name())))
	}
	return nil
}

// CheckKubeconfig returns the error of [WriteKubeconfig] for a file in its way.
func CheckKubeconfig(path string, overwrite bool) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("kubeconfig: %w", err)
	case info.IsDir():
		return fmt.Errorf("kubeconfig %s: is a directory", path)
	case overwrite:
		return nil
	case !info.Mode().IsRegular():
		return fmt.Errorf("kubeconfig %s: %w", path, ErrForeignFile)
	}
	old, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("kubeconfig: %w", err)
	}
	if len(old) > 0 && !bytes.HasPrefix(old, []byte(kubeconfigMark)) {
		return fmt.Errorf("kubeconfig %s: %w", path, ErrForeignFile)
	}
	return nil
}
