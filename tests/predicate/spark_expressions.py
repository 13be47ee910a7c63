"""Expressions whose values are compared with those of Spark, one a line, by topic.

Their columns are those of ``test_expressions_against_spark.table``.
"""

from __future__ import annotations

NUMBERS = """
small + small2
small - 1
small * small2
small * 2L
tiny + small
- small
- d
- dec
+ small
abs(small)
abs(dec)
abs(d)
small / small2
l / 7
small % small2
l % 7
- small % small2
pmod(small, small2)
mod(small, 5)
small div small2
l div 7
small_d + small
small_d / small2
d * 2
d + f
d - d
d % 7
f * 2
f + small
f / 3
dec + dec2
dec - dec2
dec * dec2
dec / dec2
dec % dec2
dec + small
dec * 2
dec / 3
dec + d
dec / small2
wide + dec
wide * dec
wide / dec2
wide - 1
small + number
number * 2
number / 4
1 + 2 * 3
2 - 3 - 4
7 / 2
-7 % 3
7 div 2
small + NULL
least(small, small2)
greatest(small, small2, NULL)
least(d, small_d)
greatest(d, small_d)
least(dec, small)
greatest(s, s2)
CAST(small2 AS tinyint) + 0Y
""".strip().splitlines()

TEXTS = """
upper(s)
lower(s)
upper(number)
length(s)
length(small)
char_length(s)
trim(s)
ltrim(s)
rtrim(s)
substr(s, 2)
substr(s, 2, 2)
substr(s, 0, 2)
substr(s, -3)
substr(s, -3, 2)
substr(s, -9, 4)
substr(s, 3, 0)
substr(s, 3, -1)
substring(s, 1, 100)
substr(small, 1, 2)
left(s, 2)
left(s, 0)
left(s, -1)
right(s, 2)
right(s, 0)
right(s, 99)
concat(s, '-', s2)
concat(s, small)
s || 'x' || day
concat()
startswith(s, 'a')
startswith(s, '')
endswith(s, 'a')
contains(s, 'ab')
contains(upper(s), 'AB')
upper(s) LIKE 'A%'
lower(s) LIKE '%_b%'
s ILIKE 'aB%'
s ILIKE '%É%'
s NOT ILIKE '_B%'
s RLIKE 'a'
s RLIKE '^a'
s RLIKE 'a$'
s RLIKE '(a|b$)$'
s RLIKE '(a$|b)\\\\s*'
s RLIKE '^abc$'
s RLIKE 'a.b'
s RLIKE '.'
s RLIKE '^.*$'
s RLIKE '[a-c]+$'
s RLIKE '[^a-z]'
s RLIKE '\\\\d{2,}'
s RLIKE '\\\\s'
s RLIKE '^\\\\w+$'
s RLIKE '(ab|b)?c'
s RLIKE 'a|^b|1$'
s RLIKE '^(?:a|é)'
s RLIKE '\\\\u00e9'
s RLIKE '😀'
s RLIKE '^.$'
s RLIKE 'a*?b'
s RLIKE '(?i)aB'
s RLIKE '(?i)k|É'
s RLIKE '(?i)[^A-Bk]b'
s RLIKE '(?i)^[@-Cx-z]'
s RLIKE '(?i)z[a_]?'
lower(s) RLIKE 'ab|σ'
s ILIKE '%aB%'
s ILIKE '%σ_%'
s NOT ILIKE '%k%'
lower(s) LIKE '%i%b'
s RLIKE ''
s RLIKE '[.%_-]'
s = s2
s < s2
s > upper(s)
""".strip().splitlines()

TIMES = """
year(day)
year(ts)
year(ntz)
quarter(day)
month(ts)
day(ts)
dayofmonth(day)
dayofyear(ts)
dayofweek(day)
weekday(ts)
hour(ts)
minute(ts)
second(ts)
hour(ntz)
hour(day)
extract(YEAR FROM ts)
year('1998-05-06')
trunc(day, 'year')
trunc(day, 'MM')
trunc(day, 'quarter')
trunc(day, 'week')
trunc(ts, 'month')
trunc(day, 'day')
date_trunc('year', ts)
date_trunc('quarter', ts)
date_trunc('month', ts)
date_trunc('week', ts)
date_trunc('day', ts)
date_trunc('DD', ntz)
date_trunc('hour', ts)
date_trunc('minute', ts)
date_trunc('second', ts)
date_trunc('millisecond', ts)
date_trunc('microsecond', ts)
date_trunc('month', day)
date_trunc('nothing', ts)
to_date(ts)
to_date(ntz)
to_date('1998-05-06')
date(ts)
day + 1
1 + day
day - 30
day + small
date_add(day, 7)
date_sub(day, small)
add_months(day, 1)
add_months(day, -13)
datediff(day, day2)
datediff(ts, day)
day + INTERVAL 1 DAY
day + INTERVAL 1 MONTH
day - INTERVAL 1 YEAR
day + INTERVAL 2 WEEKS
day + INTERVAL 1 HOUR
INTERVAL 3 DAYS + day
ts + INTERVAL 1 DAY
ts - INTERVAL 1 MONTH
ts + INTERVAL 90 MINUTES
ts + INTERVAL '1.5' SECOND
ntz + INTERVAL 1 MONTH
ntz - INTERVAL 36 HOURS
unix_timestamp(ts)
unix_seconds(ts)
unix_millis(ts)
unix_micros(ts)
unix_date(day)
day = day2
day < ts
ts > ntz
day < ntz
CAST(ts AS date)
CAST(ts AS timestamp_ntz)
CAST(ntz AS timestamp)
CAST(day AS timestamp)
CAST(day AS timestamp_ntz)
CAST(ntz AS date)
CAST(day AS string)
CAST(ts AS string)
CAST(ntz AS string)
""".strip().splitlines()

CONDITIONS = """
coalesce(small, 9)
coalesce(small, small2, l)
nvl(s, 'none')
ifnull(dec, 1)
nullif(small, small2)
nullif(small2, 1)
nvl2(small, 'y', 'n')
CASE WHEN small > 0 THEN 'p' WHEN small < 0 THEN 'n' END
CASE small2 WHEN 1 THEN 10 WHEN 2 THEN 20L ELSE 0.5 END
CASE WHEN small2 > 0 THEN small / small2 ELSE small_d END
if(flag, small, d)
if(flag AND small > 0, s, s2)
isnan(d)
isnan(f)
isnull(small)
isnotnull(s)
small = small2
small <> d
small <=> small2
d = d
d > 1e300
d < small_d
d <= d + 0
d >= f
f = d
dec < dec2
dec > small
dec = 5
wide > dec
flag > (small > 0)
(small > 0) = true
(small > 0) IS TRUE
(small > 0) IS NOT TRUE
(small > 0) IS FALSE
(small > 0) IS NOT FALSE
(small > 0) IS NULL
(small > 0 AND flag) IS UNKNOWN
(small > 0) <=> flag
NOT (small > small2)
small > small2 OR flag
small > small2 AND NOT flag
small IN (small2, 5, NULL)
small2 IN (1, 2.0, 3L)
small2 NOT IN (1, small)
small2 IN (1.5D, 2D)
tiny IN (1, 2, 300)
abs(small2) IN (1, 7, NULL)
NOT (abs(small2) IN (1, 7, NULL))
upper(s) IN ('ABC', 'A')
small BETWEEN small2 AND 500
number IN (1, 2)
size(tags)
size(m)
cardinality(longs)
array_contains(tags, 'x')
array_contains(tags, s)
array_contains(array(s, 'abc', s2), 'abc')
arrays_overlap(tags, array('x'))
arrays_overlap(tags, array('y', 'z', NULL))
arrays_overlap(array('x', 'none'), tags)
NOT arrays_overlap(tags, array('x', NULL))
arrays_overlap(tags, map_values(m))
arrays_overlap(map_keys(m), array('j', s))
arrays_overlap(longs, array(1, 9L, NULL))
arrays_overlap(array(d, small_d, 2.5D), array(0.0D, -2.5D, double('NaN')))
arrays_overlap(array(d, 1D), array(small_d - small_d, d / 1D))
arrays_overlap(longs, array(small2, 3))
arrays_overlap(array(small, tiny), longs)
map_keys(m) IS NULL
size(map_values(m))
map_contains_key(m, 'k')
NOT map_contains_key(m, 'j')
map_contains_key(m, s)
array_contains(map_keys(m), 'k')
array_contains(map_values(m), 'w')
NOT array_contains(map_values(m), 'w')
size(array(small, small2, NULL))
array_contains(longs, 2)
array_contains(longs, tiny)
element_at(m, 'k')
m['j']
m[s]
st.q
st IS NULL
st IS NOT NULL
tags IS NULL
st.q + 1
""".strip().splitlines()

CASTS = """
CAST(small AS bigint)
CAST(small AS double)
CAST(small AS decimal(10,2))
CAST(l AS double)
CAST(l AS float)
CAST(l AS string)
CAST(i AS float)
CAST(dec AS double)
CAST(wide AS double)
CAST(dec AS int)
CAST(dec AS decimal(7,1))
CAST(wide AS decimal(21,1))
CAST(dec AS string)
CAST(small_d AS int)
CAST(f AS double)
CAST(d AS float)
CAST(flag AS int)
CAST(flag AS string)
CAST(small AS boolean)
CAST(d AS boolean)
CAST(number AS int)
CAST(number AS bigint)
CAST(number AS double)
try_cast(i AS tinyint)
try_cast(l AS int)
try_cast(d AS int)
try_cast(d AS bigint)
try_cast(dec AS tinyint)
try_cast(dec AS decimal(4,2))
try_cast(small AS decimal(4,2))
try_cast(wide AS bigint)
try_cast(s AS int)
try_cast(s AS bigint)
try_cast(s AS double)
try_cast(s AS boolean)
try_cast(s AS date)
try_cast(s AS timestamp)
try_cast('1998-05-06' AS date)
try_cast('x' AS int)
""".strip().splitlines()

EVERY = {"numbers": NUMBERS, "texts": TEXTS, "conditions": CONDITIONS, "casts": CASTS}
