package upload

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path"
	"strings"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

// S3Store stores bundles as objects <prefix>/<run>/<index>-of-<pods>-<id>.wlresult of
// an S3-compatible store. Its URL is
//
//	s3://BUCKET[/PREFIX][?endpoint=URL&region=REGION]
//
// Defaults come from AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL, and AWS_REGION or
// AWS_DEFAULT_REGION; else the endpoint is Amazon's. Credentials come from AWS_ACCESS_KEY_ID,
// AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN, else from the web identity of the pod or from the
// machine, never from the URL. Uploading needs s3:PutObject, reading s3:ListBucket and s3:GetObject.
type S3Store struct {
	client         *minio.Client
	bucket, prefix string
}

// parseS3 parses the URL of a store. The error wraps [ErrTarget].
func parseS3(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%w: s3=…: not a URL", ErrTarget)
	}
	bad := func(format string, args ...any) (*url.URL, error) {
		return nil, fmt.Errorf("%w: s3=%s: %s", ErrTarget, u.Redacted(), fmt.Sprintf(format, args...))
	}
	switch {
	case u.Scheme != "s3" || u.Host == "":
		return bad("want s3://BUCKET[/PREFIX][?endpoint=URL&region=REGION]")
	case u.User != nil:
		return bad("credentials belong in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, not in the URL")
	}
	for key, values := range u.Query() {
		switch key {
		case "region":
		case "endpoint":
			if _, err := parseEndpoint(values[0]); err != nil {
				return bad("%v", err)
			}
		default:
			return bad("unknown parameter %q (have endpoint, region)", key)
		}
	}
	return u, nil
}

func parseEndpoint(text string) (*url.URL, error) {
	e, err := url.Parse(text)
	if err != nil || e.Scheme != "http" && e.Scheme != "https" || e.Host == "" || strings.Trim(e.Path, "/") != "" || e.User != nil {
		return nil, fmt.Errorf("endpoint %q: want http://HOST[:PORT] or https://HOST[:PORT]", text)
	}
	return e, nil
}

// OpenS3 returns the store of a URL. It sends no request. The error wraps [ErrTarget].
func OpenS3(text string) (*S3Store, error) {
	u, err := parseS3(text)
	if err != nil {
		return nil, err
	}
	query := u.Query()
	region := cmp.Or(query.Get("region"), os.Getenv("AWS_REGION"), os.Getenv("AWS_DEFAULT_REGION"))
	endpoint := cmp.Or(query.Get("endpoint"), os.Getenv("AWS_ENDPOINT_URL_S3"), os.Getenv("AWS_ENDPOINT_URL"))
	if endpoint == "" {
		endpoint = "https://s3.amazonaws.com"
	} else {
		// Other stores have only one region.
		region = cmp.Or(region, "us-east-1")
	}
	creds := credentials.NewIAM("")
	if id, secret := os.Getenv("AWS_ACCESS_KEY_ID"), os.Getenv("AWS_SECRET_ACCESS_KEY"); id != "" || secret != "" {
		creds = credentials.NewStaticV4(id, secret, os.Getenv("AWS_SESSION_TOKEN"))
	}
	e, err := parseEndpoint(endpoint)
	if err != nil {
		return nil, fmt.Errorf("%w: s3=%s: %w", ErrTarget, text, err)
	}
	client, err := minio.New(e.Host, &minio.Options{Creds: creds, Secure: e.Scheme == "https", Region: region})
	if err != nil {
		return nil, fmt.Errorf("%w: s3=%s: %w", ErrTarget, text, err)
	}
	return &S3Store{client: client, bucket: u.Host, prefix: strings.Trim(u.Path, "/")}, nil
}

// Upload implements [Sink]. S3 stores an object completely or not at all.
func (s *S3Store) Upload(ctx context.Context, p Bundle) error {
	name := path.Join(s.prefix, fileName(p))
	_, err := s.client.PutObject(ctx, s.bucket, name, bytes.NewReader(p.Data), int64(len(p.Data)), minio.PutObjectOptions{
		ContentType: "application/octet-stream", PartSize: 16 << 20,
	})
	if err != nil {
		return fmt.Errorf("s3://%s/%s: %w", s.bucket, name, err)
	}
	return nil
}

// Read implements [Reader]. It sends one request per 1,000 names and one per bundle.
func (s *S3Store) Read(ctx context.Context, run string, take func(Bundle) error) ([]Damage, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // stops the goroutine of ListObjects
	r := newReceiver(run, take)
	prefix := path.Join(s.prefix, run) + "/"
	if prefix == "/" {
		prefix = ""
	}
	for o := range s.client.ListObjects(ctx, s.bucket, minio.ListObjectsOptions{Prefix: prefix, Recursive: true}) {
		where := "s3://" + s.bucket + "/" + cmp.Or(o.Key, prefix)
		if o.Err != nil {
			return r.unrepaired(), fmt.Errorf("%s: %w", where, o.Err)
		}
		if !strings.HasSuffix(o.Key, fileEnding) {
			continue
		}
		data, err := s.get(ctx, o.Key)
		switch {
		case minio.ToErrorResponse(err).StatusCode == http.StatusNotFound:
			continue // The object was deleted after the listing.
		case err != nil:
			return r.unrepaired(), fmt.Errorf("%s: %w", where, err)
		}
		if err := r.whole(where, data); err != nil {
			return r.unrepaired(), err
		}
	}
	return r.unrepaired(), ctx.Err()
}

func (s *S3Store) get(ctx context.Context, name string) ([]byte, error) {
	o, err := s.client.GetObject(ctx, s.bucket, name, minio.GetObjectOptions{})
	if err != nil {
		return nil, err
	}
	defer func() { _ = o.Close() }() // The object was only read.
	data, err := io.ReadAll(io.LimitReader(o, maxContents+1))
	if err == nil && len(data) > maxContents {
		err = ErrTooLarge
	}
	return data, err
}
