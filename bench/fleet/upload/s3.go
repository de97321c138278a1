package upload

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

// S3Store stores bundles as objects <prefix>/<run>/<index>-of-<pods>-<id>.wlresult of
// an S3-compatible store. Its URL is
//
//	s3://BUCKET[/PREFIX][?endpoint=URL&region=REGION&lookup=path|dns]
//
// Defaults come from AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL, and AWS_REGION or
// AWS_DEFAULT_REGION. The default endpoint is Amazon's. Other endpoints use path-style
// buckets, unless lookup is dns.
//
// Credentials come from AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN.
// Without them they come from the web identity of the pod or from the machine. The URL
// must not contain them. Uploading needs s3:PutObject; reading needs s3:ListBucket and
// s3:GetObject.
type S3Store struct {
	client         *minio.Client
	bucket, prefix string
}

// place is the parsed URL of a store.
type place struct {
	bucket, prefix   string
	endpoint, region string
	secure           bool
	lookup           minio.BucketLookupType
}

// amazon is the default endpoint.
const amazon = "https://s3.amazonaws.com"

// parseS3 parses the URL of a store. The error wraps [ErrTarget].
func parseS3(text string, getenv func(string) string) (place, error) {
	bad := func(format string, args ...any) (place, error) {
		return place{}, fmt.Errorf("%w: s3=%s: %s", ErrTarget, redact(text), fmt.Sprintf(format, args...))
	}
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return bad("not a URL")
	case u.Scheme != "s3" || u.Host == "":
		return bad("want s3://BUCKET[/PREFIX][?endpoint=URL&region=REGION&lookup=path|dns]")
	case u.User != nil:
		return bad("credentials belong in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, not in the URL")
	}
	p := place{bucket: u.Host, prefix: strings.Trim(u.Path, "/")}
	query := u.Query()
	for key := range query {
		if !slices.Contains([]string{"endpoint", "region", "lookup"}, key) {
			return bad("unknown parameter %q (have endpoint, region, lookup)", key)
		}
	}
	from := cmp.Or(query.Get("endpoint"), getenv("AWS_ENDPOINT_URL_S3"), getenv("AWS_ENDPOINT_URL"))
	e, err := url.Parse(cmp.Or(from, amazon))
	if err != nil || e.Scheme != "http" && e.Scheme != "https" || e.Host == "" || strings.Trim(e.Path, "/") != "" || e.User != nil {
		return bad("endpoint %q: want http://HOST[:PORT] or https://HOST[:PORT]", from)
	}
	p.endpoint, p.secure = e.Host, e.Scheme == "https"
	p.region = cmp.Or(query.Get("region"), getenv("AWS_REGION"), getenv("AWS_DEFAULT_REGION"))
	switch lookup := query.Get("lookup"); {
	case lookup == "path", lookup == "" && from != "":
		p.lookup = minio.BucketLookupPath
	case lookup == "dns":
		p.lookup = minio.BucketLookupDNS
	case lookup != "":
		return bad("lookup %q (allowed: path, dns)", lookup)
	}
	if from != "" {
		// Other stores have only one region.
		p.region = cmp.Or(p.region, "us-east-1")
	}
	return p, nil
}

// redact removes credentials from a URL.
func redact(text string) string {
	if u, err := url.Parse(text); err == nil {
		return u.Redacted()
	}
	return "…"
}

// OpenS3 returns the store of a URL. It sends no request. getenv is os.Getenv. The
// error wraps [ErrTarget].
func OpenS3(text string, getenv func(string) string) (*S3Store, error) {
	if getenv == nil {
		getenv = func(string) string { return "" }
	}
	p, err := parseS3(text, getenv)
	if err != nil {
		return nil, err
	}
	creds := credentials.NewIAM("")
	if id, secret := getenv("AWS_ACCESS_KEY_ID"), getenv("AWS_SECRET_ACCESS_KEY"); id != "" || secret != "" {
		creds = credentials.NewStaticV4(id, secret, getenv("AWS_SESSION_TOKEN"))
	}
	client, err := minio.New(p.endpoint, &minio.Options{Creds: creds, Secure: p.secure, Region: p.region, BucketLookup: p.lookup})
	if err != nil {
		return nil, fmt.Errorf("%w: s3=%s: %w", ErrTarget, redact(text), err)
	}
	return &S3Store{client: client, bucket: p.bucket, prefix: p.prefix}, nil
}

// Upload implements [Sink]. S3 stores an object completely or not at all. Upload does
// not retry permanent errors.
func (s *S3Store) Upload(ctx context.Context, p Bundle) error {
	name := s.name(fileName(p))
	_, err := s.client.PutObject(ctx, s.bucket, name, bytes.NewReader(p.Data), int64(len(p.Data)), minio.PutObjectOptions{
		ContentType: "application/octet-stream",
		// Larger bundles use a multipart upload; most are smaller.
		PartSize: 16 << 20,
	})
	if err != nil {
		return fmt.Errorf("s3://%s/%s: %w", s.bucket, name, err)
	}
	return nil
}

func (s *S3Store) name(file string) string {
	if s.prefix == "" {
		return file
	}
	return s.prefix + "/" + file
}

// Read implements [Reader]. It sends one request per 1,000 names and one per bundle.
func (s *S3Store) Read(ctx context.Context, run string, take func(Bundle) error) ([]Damage, error) {
	// cancel stops the goroutine of ListObjects.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	wanted := runs{asked: run}
	prefix := s.name("")
	if run != "" {
		prefix = s.name(run + "/")
	}
	var damaged []Damage
	for o := range s.client.ListObjects(ctx, s.bucket, minio.ListObjectsOptions{Prefix: prefix, Recursive: true}) {
		if o.Err != nil {
			return damaged, fmt.Errorf("s3://%s/%s: %w", s.bucket, prefix, o.Err)
		}
		if !strings.HasSuffix(o.Key, fileEnding) {
			continue
		}
		data, err := s.get(ctx, o.Key)
		switch {
		case gone(err):
			continue
		case err != nil:
			return damaged, fmt.Errorf("s3://%s/%s: %w", s.bucket, o.Key, err)
		}
		p, err := Decode(data)
		if err != nil {
			damaged = append(damaged, Damage{Where: "s3://" + s.bucket + "/" + o.Key, Of: unknown(), Why: err.Error()})
			continue
		}
		if !wanted.wants(p.Run) {
			continue
		}
		if err := wanted.err(); err != nil {
			return damaged, err
		}
		if err := take(p); err != nil {
			return damaged, err
		}
	}
	return damaged, ctx.Err()
}

func (s *S3Store) get(ctx context.Context, name string) ([]byte, error) {
	o, err := s.client.GetObject(ctx, s.bucket, name, minio.GetObjectOptions{})
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(o, maxContents+1))
	if err == nil && len(data) > maxContents {
		err = ErrTooLarge
	}
	return data, errors.Join(err, o.Close())
}

// gone reports whether an object was deleted after the listing.
func gone(err error) bool {
	return err != nil && minio.ToErrorResponse(err).StatusCode == http.StatusNotFound
}
