import java.io.File;
import java.net.InetSocketAddress;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hdfs.MiniDFSCluster;
import org.apache.hadoop.minikdc.MiniKdc;
import org.apache.hadoop.security.UserGroupInformation;

/**
 * A Kerberos server and an HDFS that demands its tickets, in this process and on loopback. The user
 * alice has alice.keytab and a home. It prints the address of the filesystem, that of WebHDFS, the
 * realm and where its krb5.conf lies, and ends with its standard input.
 */
public final class SecureHdfs {
    private SecureHdfs() {
    }

    public static void main(String[] args) throws Exception {
        Thread.setDefaultUncaughtExceptionHandler((thread, error) -> {
            error.printStackTrace();
            Runtime.getRuntime().halt(1); // servers that have started would keep the process
        });
        File home = new File(args[0]);
        MiniKdc kdc = new MiniKdc(MiniKdc.createConf(), home);
        kdc.start();
        File services = new File(home, "services.keytab");
        kdc.createPrincipal(services, "hdfs/localhost", "HTTP/localhost");
        kdc.createPrincipal(new File(home, "alice.keytab"), "alice");
        String hdfs = "hdfs/localhost@" + kdc.getRealm();

        Configuration conf = new Configuration();
        conf.set("hadoop.security.authentication", "kerberos");
        conf.setBoolean("hadoop.security.authorization", true);
        for (String node : new String[] {"namenode", "datanode"}) {
            conf.set("dfs." + node + ".kerberos.principal", hdfs);
            conf.set("dfs." + node + ".keytab.file", services.getPath());
        }
        conf.set("dfs.web.authentication.kerberos.principal", "HTTP/localhost@" + kdc.getRealm());
        conf.set("hadoop.http.authentication.type", "kerberos");
        conf.set("hadoop.http.authentication.kerberos.principal",
                "HTTP/localhost@" + kdc.getRealm());
        conf.set("hadoop.http.authentication.kerberos.keytab", services.getPath());
        conf.setBoolean("dfs.block.access.token.enable", true);
        conf.set("dfs.data.transfer.protection", "privacy");
        // Ports below 1024 are for root, and HTTPS needs certificates.
        conf.setBoolean("ignore.secure.ports.for.testing", true);
        conf.set("dfs.namenode.http-address", "localhost:0");
        conf.set("dfs.datanode.http.address", "localhost:0");
        conf.setInt("dfs.namenode.fs-limits.min-block-size", 0);
        UserGroupInformation.setConfiguration(conf);
        UserGroupInformation.loginUserFromKeytab(hdfs, services.getPath());
        MiniDFSCluster cluster =
                new MiniDFSCluster.Builder(conf, new File(home, "dfs")).numDataNodes(1).build();
        cluster.waitActive();
        FileSystem files = cluster.getFileSystem();
        Path user = new Path("/user/alice");
        files.mkdirs(user);
        files.setOwner(user, "alice", "alice");
        InetSocketAddress http = cluster.getNameNode().getHttpAddress();
        String web = "http://localhost:" + http.getPort();
        System.out.println(
                String.join(" ", cluster.getURI().toString(), web, kdc.getRealm(),
                        kdc.getKrb5conf().getAbsolutePath()));
        System.out.flush();
        while (System.in.read() >= 0) {
            continue;
        }
        cluster.shutdown();
        kdc.stop();
        System.exit(0);
    }
}
