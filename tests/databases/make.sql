-- Content of a database with a log. README.md tells how to run this file.

SET mover = off;

-- The rows of all tables, by id.
CREATE VIEW made AS
SELECT id,
       CASE WHEN id % 7 <> 0 THEN CAST(id * 7919 % 1000 AS integer) END AS n,
       CASE WHEN id % 5 <> 4 THEN CAST(id % 10 AS smallint) END AS small,
       CASE WHEN id % 11 <> 0 THEN 'name ' || id % 50 END AS name,
       CASE WHEN id % 13 <> 0 THEN CAST((id * 37 % 20001 - 10000) * 0.01 AS decimal(12,2)) END AS price,
       CASE WHEN id % 3 <> 2 THEN CAST(id || '00000000000000000000.0625' AS decimal(38,4)) END AS wide,
       CASE WHEN id % 17 <> 0 THEN DATE '2020-01-01' + CAST(id % 366 AS integer) END AS day,
       CASE WHEN id % 19 <> 0 THEN CAST(id * 0.25 - 100 AS double precision) END AS x,
       CASE WHEN id % 23 <> 0 THEN CAST(id * 0.5 AS real) END AS r,
       CASE WHEN id % 29 <> 0 THEN id % 3 = 0 END AS flag,
       CASE WHEN id % 31 <> 0 THEN TIMESTAMP '2020-01-01' + CAST(id || ' minutes' AS interval) END AS moment,
       CASE WHEN id % 41 <> 0 THEN TIMESTAMPTZ '2020-01-01 00:00:00Z' + CAST(id || ' hours' AS interval) END AS instant,
       CASE WHEN id % 37 <> 0 THEN CAST('raw ' || id AS bytea) END AS raw
FROM generate_series(1, 400) AS g(id);

CREATE TABLE slotted (id bigint NOT NULL, n integer, small smallint, name text, price decimal(12,2), wide decimal(38,4),
    day date, x double precision, r real, flag boolean, moment timestamp, instant timestamptz, raw bytea)
    WITH (layout = 'row');
CREATE TABLE packed (id bigint NOT NULL, n integer, small smallint, name text, price decimal(12,2), wide decimal(38,4),
    day date, x double precision, r real, flag boolean, moment timestamp, instant timestamptz, raw bytea)
    WITH (layout = 'packed_row', sort_by = 'flag, small desc, id', abstraction = '2');
CREATE TABLE columns (id bigint NOT NULL, n integer, small smallint, name text, price decimal(12,2), wide decimal(38,4),
    day date, x double precision, r real, flag boolean, moment timestamp, instant timestamptz, raw bytea)
    WITH (layout = 'column', sort_by = 'n', encoding = 'name = dictionary, raw = plain');
CREATE TABLE grouped (id bigint NOT NULL, n integer, small smallint, name text, price decimal(12,2), wide decimal(38,4),
    day date, x double precision, r real, flag boolean, moment timestamp, instant timestamptz, raw bytea)
    WITH (groups = '(id, n, small), (name, price), (wide), (day, x, r, flag), (moment), (instant), (raw)');
CREATE TABLE ranged (id bigint NOT NULL, n integer, small smallint, name text, price decimal(12,2), wide decimal(38,4),
    day date, x double precision, r real, flag boolean, moment timestamp, instant timestamptz, raw bytea)
    WITH (layout = 'column', partition_by = 'range(id, 2)');
CREATE TABLE hashed (id bigint NOT NULL, name text) WITH (partition_by = 'hash(name, 2)');
CREATE TABLE empty (id bigint NOT NULL, day date);
CREATE VIEW totals AS SELECT small, count(*) AS rows, sum(price) AS price FROM packed GROUP BY small;

-- Its columns change below.
CREATE TABLE altered (id bigint NOT NULL, old text, n integer, day date);

CREATE TABLE accounts (id bigint PRIMARY KEY, email text UNIQUE, balance decimal(12,2) DEFAULT 0 CHECK (balance >= 0));
CREATE TABLE orders (id bigint PRIMARY KEY, account bigint REFERENCES accounts (id) ON DELETE CASCADE,
    note text DEFAULT 'none');

-- Rows in blocks. Tables with indexes have two blocks.
INSERT INTO slotted SELECT * FROM made WHERE id BETWEEN 1 AND 200;
INSERT INTO grouped SELECT * FROM made WHERE id BETWEEN 1 AND 200;
INSERT INTO ranged SELECT * FROM made WHERE id BETWEEN 1 AND 200;
INSERT INTO hashed SELECT id, name FROM made WHERE id BETWEEN 1 AND 200;
INSERT INTO altered SELECT id, name, n, day FROM made WHERE id BETWEEN 1 AND 120;
INSERT INTO packed SELECT * FROM made WHERE id BETWEEN 1 AND 120;
INSERT INTO columns SELECT * FROM made WHERE id BETWEEN 1 AND 120;
INSERT INTO accounts SELECT id, 'mail ' || id, id * 10 FROM generate_series(1, 50) AS g(id);
INSERT INTO orders SELECT id, id % 50 + 1, 'order ' || id FROM generate_series(1, 80) AS g(id);
VACUUM;
CREATE INDEX packed_small_day ON packed USING csb (small, day);
CREATE INDEX columns_price ON columns USING csb (price);
CREATE INDEX columns_name ON columns USING bloom (name);
ALTER TABLE altered ADD COLUMN price decimal(12,2) DEFAULT 1.5;
ALTER TABLE altered DROP COLUMN old;
INSERT INTO packed SELECT * FROM made WHERE id BETWEEN 121 AND 200;
INSERT INTO columns SELECT * FROM made WHERE id BETWEEN 121 AND 200;
INSERT INTO altered SELECT id, n, day, price FROM made WHERE id BETWEEN 121 AND 200;
VACUUM;
ALTER TABLE altered ADD COLUMN name text;

-- Rows in the delta file, and ids of deleted rows there.
INSERT INTO slotted SELECT * FROM made WHERE id BETWEEN 201 AND 210;
INSERT INTO packed SELECT * FROM made WHERE id BETWEEN 201 AND 210;
INSERT INTO columns SELECT * FROM made WHERE id BETWEEN 201 AND 210;
INSERT INTO grouped SELECT * FROM made WHERE id BETWEEN 201 AND 210;
INSERT INTO ranged SELECT * FROM made WHERE id BETWEEN 201 AND 210;
INSERT INTO hashed SELECT id, name FROM made WHERE id BETWEEN 201 AND 210;
INSERT INTO altered SELECT id, n, day, price, name FROM made WHERE id BETWEEN 201 AND 210;
DELETE FROM altered WHERE id IN (10, 20, 30, 40, 50, 205);
DELETE FROM slotted WHERE id IN (10, 20, 30, 40, 50, 205);
DELETE FROM packed WHERE id IN (10, 20, 30, 40, 50, 205);
DELETE FROM columns WHERE id IN (10, 20, 30, 40, 50, 205);
DELETE FROM grouped WHERE id IN (10, 20, 30, 40, 50, 205);
DELETE FROM ranged WHERE id IN (10, 20, 30, 40, 50, 205);
DELETE FROM hashed WHERE id IN (10, 20, 30, 40, 50, 205);
INSERT INTO accounts (id, email) VALUES (51, 'mail 51');
CREATE TABLE numbered (id bigint GENERATED ALWAYS AS IDENTITY, name text);
INSERT INTO numbered (name) SELECT name FROM made WHERE id <= 3;
CREATE TABLE computed (id bigint NOT NULL, name text, twice bigint GENERATED ALWAYS AS (id * 2) STORED);
INSERT INTO computed VALUES (1, 'One'), (2, 'Two'), (3, 'Three');
COMMENT ON TABLE computed IS 'it''s computed';
CREATE SCHEMA shop;
CREATE TABLE shop.articles (id bigserial PRIMARY KEY, name text);
INSERT INTO shop.articles (name) VALUES ('pen'), ('ink');
CREATE TABLE indexed (id bigint NOT NULL, name text, state text);
INSERT INTO indexed VALUES (1, 'One', NULL), (2, 'Two', NULL), (3, 'TWO', 'old');
CREATE UNIQUE INDEX indexed_name ON indexed (lower(name)) WHERE state IS NULL;
CREATE FUNCTION shop.label(id bigint, prefix text DEFAULT 'no. ') RETURNS text LANGUAGE SQL IMMUTABLE STRICT AS $$ SELECT prefix || id $$;
CREATE FUNCTION changed() RETURNS int LANGUAGE SQL AS 'SELECT 1';
CREATE VIEW labels AS SELECT shop.label(id) AS label FROM numbered;
COMMENT ON SCHEMA shop IS 'what is sold';
CHECKPOINT;

-- Commits in the log.
INSERT INTO slotted SELECT * FROM made WHERE id BETWEEN 211 AND 220;
INSERT INTO packed SELECT * FROM made WHERE id BETWEEN 211 AND 220;
INSERT INTO columns SELECT * FROM made WHERE id BETWEEN 211 AND 220;
INSERT INTO grouped SELECT * FROM made WHERE id BETWEEN 211 AND 220;
INSERT INTO ranged SELECT * FROM made WHERE id BETWEEN 211 AND 220;
INSERT INTO hashed SELECT id, name FROM made WHERE id BETWEEN 211 AND 220;
ALTER TABLE altered RENAME COLUMN n TO number;
CREATE VIEW five AS SELECT * FROM altered;
ALTER TABLE altered ADD COLUMN late boolean DEFAULT true;
INSERT INTO altered SELECT id, n, day, price, name, flag FROM made WHERE id BETWEEN 211 AND 220;
DELETE FROM altered WHERE id IN (60, 70, 80, 90, 100, 206, 215);
DELETE FROM slotted WHERE id IN (60, 70, 80, 90, 100, 206, 215);
DELETE FROM packed WHERE id IN (60, 70, 80, 90, 100, 206, 215);
DELETE FROM columns WHERE id IN (60, 70, 80, 90, 100, 206, 215);
DELETE FROM grouped WHERE id IN (60, 70, 80, 90, 100, 206, 215);
DELETE FROM ranged WHERE id IN (60, 70, 80, 90, 100, 206, 215);
DELETE FROM hashed WHERE id IN (60, 70, 80, 90, 100, 206, 215);
UPDATE slotted SET n = -1 WHERE id IN (61, 207, 216);
UPDATE slotted SET n = id * 7919 % 1000 WHERE n = -1;
INSERT INTO orders (id, account) VALUES (81, 51);
INSERT INTO numbered (name) VALUES ('four'), ('five');
CREATE SEQUENCE tens START WITH 10 INCREMENT BY 10;
SELECT nextval('tens'), nextval('tens');
ALTER TABLE computed ADD COLUMN lower_name text GENERATED ALWAYS AS (lower(name)) STORED UNIQUE;
INSERT INTO computed (id, name) VALUES (4, 'Four');
COMMENT ON COLUMN computed.lower_name IS 'in lower case';
COMMENT ON SEQUENCE tens IS 'every tenth';
CREATE SCHEMA empty_schema;
SET search_path = shop;
INSERT INTO articles (name) VALUES ('paper');
CREATE VIEW names AS SELECT name FROM articles;
RESET search_path;
CREATE INDEX indexed_sum ON indexed ((id * 2), state);
INSERT INTO indexed VALUES (4, 'Four', NULL), (5, 'FOUR', 'old');
CREATE OR REPLACE FUNCTION changed() RETURNS int LANGUAGE SQL AS 'SELECT 2';
CREATE FUNCTION gone() RETURNS int LANGUAGE SQL AS 'SELECT 3';
DROP FUNCTION gone;
CREATE FUNCTION articles_before(name text) RETURNS bigint LANGUAGE SQL AS 'SELECT count(*) FROM shop.articles AS a WHERE a.name < articles_before.name';
COMMENT ON FUNCTION changed IS 'returns two';
CREATE TABLE gone (id bigint);
DROP TABLE gone;
CREATE TABLE late (id bigint NOT NULL, name text);
INSERT INTO late SELECT id, name FROM made WHERE id <= 10;
SELECT 'all statements have run' AS state;
